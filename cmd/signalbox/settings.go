// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/event"
)

// setting is one field of a Config, and where its value came from.
type setting struct {
	key, value, help string
	origin           origin
	where            string // the line of a file, the name of a variable or flag
	field            reflect.Value
}

// origin is the kind of place that a value came from; a later one overrides an earlier one.
type origin string

const (
	fromDefault     origin = "default"
	fromFile        origin = "file"
	fromEnvironment origin = "environment"
	fromFlag        origin = "flag"
)

func (s *setting) flag() string     { return strings.ReplaceAll(s.key, "_", "-") }
func (s *setting) variable() string { return "SIGNALBOX_" + strings.ToUpper(s.key) }

// settingsOf returns the settings of a Config at their defaults, in the order of its fields.
func settingsOf(c *Config) []*setting {
	var settings []*setting
	var add func(v reflect.Value)
	add = func(v reflect.Value) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Anonymous {
				add(v.Field(i))
				continue
			}
			s := &setting{key: f.Tag.Get("key"), value: f.Tag.Get("value"), help: f.Tag.Get("help"), field: v.Field(i)}
			mustSet(s, f.Tag.Get("default"))
			settings = append(settings, s)
		}
	}
	add(reflect.ValueOf(c).Elem())
	return settings
}

// mustSet panics if a default cannot be parsed, which is a mistake in a field's tag.
func mustSet(s *setting, text string) {
	if err := s.set(text, fromDefault, ""); err != nil {
		panic(err)
	}
}

// set reads a value from its text, which is the same wherever it comes from.
func (s *setting) set(text string, from origin, where string) (err error) {
	switch v := s.field.Addr().Interface().(type) {
	case *string:
		*v = text
	case *bool:
		*v, err = strconv.ParseBool(text)
	case *int:
		*v, err = strconv.Atoi(text)
	case *time.Duration:
		*v, err = time.ParseDuration(text)
	case *byteSize:
		err = v.Set(text)
	case encoding.TextUnmarshaler:
		err = v.UnmarshalText([]byte(text))
	default:
		return fmt.Errorf("the type of %s cannot be set from text", s.key)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be %q: write %s (%s)", s.key, text, article(s.value), s.help)
	}
	s.origin, s.where = from, where
	return nil
}

// article is what a value is called, with the article of one.
func article(value string) string {
	switch {
	case strings.HasSuffix(value, "s"), strings.Contains(value, "|"):
		return value
	case strings.ContainsRune("aeio", rune(value[0])):
		return "an " + value
	}
	return "a " + value
}

// text is the value as it would be written.
func (s *setting) text() string {
	switch v := s.field.Addr().Interface().(type) {
	case *byteSize:
		return v.String()
	case *time.Duration:
		return shortDuration(*v)
	case fmt.Stringer:
		return strings.ToLower(v.String())
	}
	return fmt.Sprint(s.field.Interface())
}

// shortDuration leaves out the zero minutes and seconds that String writes.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// configFlags are the flags of a command that is configured: --config and those of the settings that concern it.
type configFlags struct {
	path  string
	given map[string]string // by key, what the command line says
}

// register adds the flags of the settings with these keys, or of all.
func (f *configFlags) register(cmd *cobra.Command, keys ...string) {
	f.given = map[string]string{}
	cmd.Flags().StringVar(&f.path, "config", os.Getenv("SIGNALBOX_CONFIG"),
		"configuration `file`; the environment variable SIGNALBOX_CONFIG sets the default")
	for _, s := range settingsOf(&Config{}) {
		if len(keys) > 0 && !slices.Contains(keys, s.key) {
			continue
		}
		flag := cmd.Flags().VarPF(&settingFlag{setting: s, given: f.given}, s.flag(), "", s.help)
		if s.field.Kind() == reflect.Bool {
			flag.NoOptDefVal = "true"
		}
	}
}

// settingFlag notes what the command line says; it is applied after the file and the environment.
type settingFlag struct {
	*setting
	given map[string]string
}

func (f *settingFlag) String() string {
	if f.setting == nil {
		return ""
	}
	return f.text()
}

func (f *settingFlag) Type() string { return f.value }

func (f *settingFlag) Set(text string) error {
	f.given[f.key] = text
	return f.set(text, fromFlag, "--"+f.flag())
}

// resolved is a Config and how it came about.
type resolved struct {
	Config
	settings []*setting
}

// faultsMax bounds how many faults one message lists.
const faultsMax = 10

// resolve applies the file, the environment and the flags, in this order. It reports every fault at once, since each
// attempt may cost a restart.
func (f *configFlags) resolve() (*resolved, error) {
	r := &resolved{}
	r.settings = settingsOf(&r.Config)
	var faults []string
	note := func(where string, err error) {
		if err != nil {
			faults = append(faults, where+": "+err.Error())
		}
	}
	if f.path != "" {
		text, err := os.ReadFile(f.path)
		if err != nil {
			return nil, fmt.Errorf("%w; name the configuration file with --config", err)
		}
		faults = r.read(f.path, text)
	}
	for _, s := range r.settings {
		if text, ok := os.LookupEnv(s.variable()); ok && text != "" {
			note(s.variable(), s.set(text, fromEnvironment, s.variable()))
		}
		if text, ok := f.given[s.key]; ok {
			note("--"+s.flag(), s.set(text, fromFlag, "--"+s.flag()))
		}
	}
	if len(faults) > 0 {
		more := ""
		if n := len(faults) - faultsMax; n > 0 {
			faults, more = faults[:faultsMax], fmt.Sprintf("; and %d more", n)
		}
		return nil, event.Errorf(event.CodeParameterInvalid, "The configuration cannot be used: %s%s.", strings.Join(faults, "; "), more)
	}
	return r, r.validate()
}
