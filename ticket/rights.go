// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"slices"
	"strings"
)

// Right is a type of message that an agent may send, and the topics that it may
// send it to.
type Right struct {
	Type   string   `json:"type"`
	Topics []string `json:"topics"` // patterns
}

// Rights returns what an agent with some roles and domains may send and read in a
// space: what the registry of types says, and nothing else.
func Rights(space string, roles, domains []string) (sends []Right, reads []string) {
	root := TopicRoot + "." + space + "."
	for i := range load().Types {
		t := &load().Types[i]
		var topics []string
		for _, r := range t.Routes {
			if slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(r.From, role) }) {
				topics = add(topics, root+t.Family+".", r.To, domains)
			}
		}
		if topics != nil {
			sends = append(sends, Right{Type: t.Name, Topics: topics})
		}
	}
	for _, r := range load().Roles {
		if slices.Contains(roles, r.Name) {
			reads = add(reads, root, r.Reads, domains)
		}
	}
	return sends, reads
}

// add appends what names stand for: Domain for each domain of the agent, or for
// any if it has none.
func add(list []string, prefix string, names, domains []string) []string {
	if len(domains) == 0 {
		domains = []string{"*"}
	}
	for _, name := range names {
		for _, domain := range domains {
			if topic := prefix + strings.ReplaceAll(name, Domain, domain); !slices.Contains(list, topic) {
				list = append(list, topic)
			}
		}
	}
	return list
}
