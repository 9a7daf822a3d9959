// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check or show what a broker would be configured with",
		Long: "A broker is configured by flags, by environment variables, by a file (--config) and by defaults; the first of\n" +
			"these that says something about a setting decides. A setting has one name everywhere: min_free in the file is\n" +
			"--min-free as a flag and SIGNALBOX_MIN_FREE in the environment. docs/configuration.md lists all.",
		Example: "  signalbox config example > signalbox.yaml\n" +
			"  signalbox config check --config signalbox.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.configCheckCommand(), a.configShowCommand(), a.configExampleCommand())
	return cmd
}

func (a *app) configCheckCommand() *cobra.Command {
	f := &configFlags{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration without starting a broker",
		Long: "Check the file, the environment and the flags as \"signalbox serve\" would, and report every fault with its line.\n" +
			"Variables that begin with SIGNALBOX_ and set nothing are named, but are no fault: others may have set them.",
		Example: "  signalbox config check\n" +
			"  signalbox config check --min-free 1GiB",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			r, err := f.resolve()
			if err != nil {
				return err
			}
			for _, name := range r.unknownVariables() {
				fmt.Fprintf(a.err, "signalbox: the environment variable %s sets nothing\n", name)
			}
			_, err = fmt.Fprintln(a.out, "The configuration is sound.")
			return err
		},
	}
	f.register(cmd)
	return cmd
}

// unknownVariables are those that look like settings.
func (r *resolved) unknownVariables() (names []string) {
	known := []string{"SIGNALBOX_CONFIG", "SIGNALBOX_URL"}
	for _, s := range r.settings {
		known = append(known, s.variable())
	}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "SIGNALBOX_") && !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (a *app) configShowCommand() *cobra.Command {
	f := &configFlags{}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the effective configuration and where each value comes from",
		Long: "Show what \"signalbox serve\" would run with in this environment and with these flags: every setting, its value,\n" +
			"and whether the default, a line of the file, a variable or a flag decided it.",
		Example: "  signalbox config show\n" +
			"  SIGNALBOX_LOG_LEVEL=debug signalbox config show --json",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.configShow(f) },
	}
	f.register(cmd)
	return cmd
}

// settingShown is one line of "config show".
type settingShown struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin origin `json:"origin"`
	Where  string `json:"where,omitempty"`
}

func (a *app) configShow(f *configFlags) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	r, err := f.resolve()
	if err != nil {
		return err
	}
	width := 0
	for _, s := range r.settings {
		width = max(width, len(s.key)+len(s.text()))
	}
	for _, s := range r.settings {
		if !text {
			if err := writeJSON(a.out, settingShown{s.key, s.text(), s.origin, s.where}); err != nil {
				return err
			}
			continue
		}
		from := string(s.origin)
		if s.where != "" {
			from += ", " + s.where
		}
		fmt.Fprintf(a.out, "%s: %s%s  # %s\n", s.key, s.text(), strings.Repeat(" ", width-len(s.key)-len(s.text())), from)
	}
	return nil
}

func (a *app) configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "example",
		Short:   "Print a configuration file with every setting",
		Long:    "Print a configuration file that has every setting at its default, with its explanation. Keep the lines to change.",
		Example: "  signalbox config example > signalbox.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(exampleConfig)
			return err
		},
	}
}
