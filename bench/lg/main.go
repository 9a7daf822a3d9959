// SPDX-License-Identifier: Apache-2.0

// Command lg holds the load generators and the floors of the benchmark. Every
// run of a generator prints one JSON object on standard output, which bench/run
// collects; it can also be used by hand.
//
// The floors are the cheapest Go servers that do the bare work of a row. They
// set the scale on which a figure is read, because absolute figures differ from
// machine to machine and from minute to minute.
//
// It talks to servers over the network only and imports nothing of Signalbox.
package main

import (
	"fmt"
	"os"
)

const usage = `usage: lg pub|fan|idle|replay|echo|push|sink|churn|disk|floor [flags]   (lg COMMAND -h lists them)
  pub     publish in a closed loop, at a rate, or a number of events
  fan     one publisher, many SSE readers: deliveries and latency
  idle    resident memory per idle SSE connection
  replay  time for a fresh reader to get what is stored
  echo    publish on a WebSocket and read the event there
  push    deliveries of webhooks to a sink of its own
  sink    that sink alone
  churn   agents that come, read, and leave for good: memory of the server
  disk    how long a write and its fdatasync take
  floor   the cheapest server: POST to a log, SSE fan-out`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	args := os.Args[2:]
	var err error
	switch os.Args[1] {
	case "pub":
		err = pubMain(args)
	case "fan":
		err = fanMain(args)
	case "idle":
		err = idleMain(args)
	case "replay":
		err = replayMain(args)
	case "echo":
		err = echoMain(args)
	case "push":
		err = pushMain(args)
	case "sink":
		err = sinkMain(args)
	case "churn":
		err = churnMain(args)
	case "disk":
		err = diskMain(args)
	case "floor":
		err = floorMain(args)
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lg "+os.Args[1]+":", err)
		os.Exit(1)
	}
}
