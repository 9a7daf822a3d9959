// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"time"
)

// idleMain measures the resident memory that an idle SSE connection costs the
// server. Socket buffers of the kernel are not part of it.
func idleMain(args []string) error {
	fs := flag.NewFlagSet("idle", flag.ContinueOnError)
	url := fs.String("sub", "", "SSE URL")
	n := fs.Int("subs", 2000, "readers")
	warm := fs.Int("warm-subs", 50, "readers that connect before the first measurement and stay")
	settle := fs.Duration("settle", 3*time.Second, "wait before each measurement")
	pid := fs.Int("pid", 0, "process of the server")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *pid == 0 {
		return errors.New("-pid is needed")
	}
	m := newMeter(*pid)
	first, err := dialCrowd(*warm, *url, nil)
	if err != nil {
		return err
	}
	defer first.close()
	time.Sleep(*settle)
	before, _ := procStat(*pid)
	begin := time.Now()
	all, err := dialCrowd(*n, *url, nil)
	if err != nil {
		return err
	}
	defer all.close()
	connect := time.Since(begin)
	time.Sleep(*settle)
	after, _ := procStat(*pid)
	return m.emit(result{
		"bench": "idle", "subs": *n, "connect_s": connect.Seconds(),
		"rss_kib_per_conn": float64(after-before) / float64(*n),
	})
}
