// SPDX-License-Identifier: Apache-2.0

package main

import (
	"signalbox/client"
	ticketclient "signalbox/client/ticket"
)

// tokens makes the tokens of the agent that --as and --agent-key name; nil if they
// name none. For which space they are is asked of the broker, at the first call.
func (a *app) tokens() (client.TokenSource, error) {
	switch {
	case a.as == "" && a.agentKey == "":
		return nil, nil
	case a.as == "" || a.agentKey == "":
		return nil, usagef("--as and --agent-key belong together: say which agent it is, and where its key is")
	}
	key, err := readKey(a.agentKey)
	if err != nil {
		return nil, usagef("--agent-key: %w", err)
	}
	anonymous, err := a.newClient()
	if err != nil {
		return nil, err
	}
	return ticketclient.Tokens(anonymous, a.as, key), nil
}
