// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary",
		Long:    "Print the version of this binary, the commit it was built from and the Go release that built it.",
		Example: "  signalbox version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := a.text()
			if err != nil {
				return err
			}
			v := readVersion()
			if !text {
				return writeJSON(a.out, v)
			}
			_, err = fmt.Fprintf(a.out, "signalbox %s (commit %s, %s, %s)\n", v.Version, v.Commit, v.Go, v.Platform)
			return err
		},
	}
}

type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readVersion asks the binary itself, so that no build needs a flag for it.
func readVersion() versionInfo {
	v := versionInfo{Version: "devel", Commit: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified {
		v.Commit += "+changes"
	}
	return v
}
