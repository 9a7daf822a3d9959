// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"

	"signalbox/client"
	"signalbox/event"
)

// The code that the README shows. A test of the command compares them.
func Example_readme() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nobody is there to answer

	c, err := client.New("http://127.0.0.1:8080")
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := c.Publish(ctx, "fleet.tasks", event.Draft{
		Source: "/beta", Type: "task.status", Subject: "T-998", Data: []byte(`{"status":"PICKING"}`),
	})
	fmt.Printf("%q %t\n", receipt.Outcome, err != nil)
	for item, err := range c.Follow(ctx, []string{"fleet.tasks"}, client.FollowOptions{}) {
		// resumes by itself, after a lost link or a restart of the broker
		fmt.Println(item.Kind, err != nil)
	}
	// Output:
	// "" true
	// 0 true
}
