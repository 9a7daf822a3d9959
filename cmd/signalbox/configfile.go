// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// read applies a configuration file: one YAML mapping from keys to scalars, whose text is read as it is from a flag. So
// "no" is no truth value and 010 no octal number. It returns all faults with their lines. A key that is unknown is one:
// a misspelt setting that is passed over would silently leave the default in place.
func (r *resolved) read(path string, text []byte) (faults []string) {
	fault := func(n ast.Node, format string, args ...any) {
		where := path
		if n != nil {
			where = fmt.Sprintf("%s:%d", path, n.GetToken().Position.Line)
		}
		faults = append(faults, where+": "+fmt.Sprintf(format, args...))
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		if syntax := (yaml.Error)(nil); errors.As(err, &syntax) {
			return []string{fmt.Sprintf("%s:%d: %s", path, syntax.GetToken().Position.Line, syntax.GetMessage())}
		}
		return []string{path + ": " + firstLine(err.Error())}
	}
	if len(file.Docs) > 1 {
		return []string{path + ": it holds several documents and must be one"}
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil // only comments
	}
	var entries []*ast.MappingValueNode
	switch body := file.Docs[0].Body.(type) {
	case *ast.MappingNode:
		entries = body.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{body}
	case *ast.CommentGroupNode:
		return nil
	default:
		fault(body, "it must be lines of the form key: value")
		return faults
	}
	for _, e := range entries {
		key := e.Key.GetToken().Value
		i := slices.IndexFunc(r.settings, func(s *setting) bool { return s.key == key })
		if i < 0 {
			fault(e.Key, "there is no setting %q%s", key, r.suggest(key))
			continue
		}
		switch e.Value.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		default:
			fault(e.Key, "%s must have a single value on its line", key)
			continue
		}
		where := fmt.Sprintf("%s:%d", path, e.Key.GetToken().Position.Line)
		if err := r.settings[i].set(e.Value.GetToken().Value, fromFile, where); err != nil {
			faults = append(faults, where+": "+err.Error())
		}
	}
	return faults
}

// suggest names the setting that was probably meant.
func (r *resolved) suggest(key string) string {
	best, least := "", 4
	for _, s := range r.settings {
		if d := editDistance(strings.ReplaceAll(strings.ToLower(key), "-", "_"), s.key); d < least {
			best, least = s.key, d
		}
	}
	if best == "" {
		return `; "signalbox config example" lists all`
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// editDistance counts the letters to insert, remove or replace (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
