// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// result is one measured run; its members are numbers and strings.
type result map[string]any

// procStat returns resident KiB and CPU time (user and system) of a process,
// zero when pid is zero or the process is gone. Linux only, as is the bench.
func procStat(pid int) (rssKiB int64, cpu time.Duration) {
	if pid == 0 {
		return 0, 0
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			rssKiB, _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The command name may hold spaces: the fields are counted after its bracket.
	if f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(f) > 12 {
		user, _ := strconv.ParseInt(string(f[11]), 10, 64)
		system, _ := strconv.ParseInt(string(f[12]), 10, 64)
		cpu = time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 on Linux.
	}
	return rssKiB, cpu
}

// hostCPU returns the busy and total CPU time of the machine in USER_HZ ticks.
func hostCPU() (busy, total float64) {
	b, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil || i > 8 {
			continue
		}
		total += v
		if i != 4 && i != 5 { // idle and iowait
			busy += v
		}
	}
	return busy, total
}

// meter tells how much of the machine other processes used while a run lasted,
// so that a disturbed sample can be recognised, and what the server used.
type meter struct {
	pid         int
	busy, total float64
	self, srv   time.Duration
}

func newMeter(pid int) *meter {
	m := &meter{pid: pid}
	m.busy, m.total = hostCPU()
	_, m.self = procStat(os.Getpid())
	_, m.srv = procStat(pid)
	return m
}

// emit completes the result and prints it.
func (m *meter) emit(r result) error {
	busy, total := hostCPU()
	_, self := procStat(os.Getpid())
	rss, srv := procStat(m.pid)
	r["ext_cpu_pct"] = 0.0 // so short a run is within one tick of the machine's clock
	if total > m.total {
		own := (self - m.self + srv - m.srv).Seconds() * 100
		r["ext_cpu_pct"] = 100 * (busy - m.busy - own) / (total - m.total)
	}
	r["gen_cpu_s"] = (self - m.self).Seconds()
	if m.pid != 0 {
		r["srv_cpu_s"] = (srv - m.srv).Seconds()
		r["rss_mib"] = float64(rss) / 1024
	}
	r["time"] = time.Now().UTC().Format(time.RFC3339)
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(b))
	return err
}
