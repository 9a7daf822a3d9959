// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func (e *examination) machine() {
	dir := existing(e.Dir)
	e.fileSystem(dir)
	e.syncs(dir)
	e.descriptors()
	e.memory()
	e.clock()
	e.kernel()
}

// existing is the directory itself or the nearest above it that exists.
func existing(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// fileSystems are those that are known by more than a number; the magic
// numbers are those of statfs(2).
var fileSystems = map[int64]struct {
	name     string
	severity Severity
	meaning  string
}{
	unix.EXT4_SUPER_MAGIC:      {"ext4", OK, ""},
	unix.XFS_SUPER_MAGIC:       {"xfs", OK, ""},
	unix.BTRFS_SUPER_MAGIC:     {"btrfs", Note, "Copy on write makes small synced writes slower."},
	0x2fc12fc1:                 {"zfs", Note, "Copy on write makes small synced writes slower."},
	unix.TMPFS_MAGIC:           {"tmpfs", Warning, "It is in memory: everything is lost when the machine restarts."},
	unix.RAMFS_MAGIC:           {"ramfs", Warning, "It is in memory: everything is lost when the machine restarts."},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlayfs", Warning, "It is a container's own layer: the data are lost with the container."},
	unix.NFS_SUPER_MAGIC:       {"NFS", Critical, "It is a network file system: locks and syncs do not keep what they promise when the network fails."},
	unix.SMB_SUPER_MAGIC:       {"SMB", Critical, "It is a network file system: locks and syncs do not keep what they promise when the network fails."},
	unix.CIFS_SUPER_MAGIC:      {"CIFS", Critical, "It is a network file system: locks and syncs do not keep what they promise when the network fails."},
	unix.SMB2_SUPER_MAGIC:      {"SMB 2", Critical, "It is a network file system: locks and syncs do not keep what they promise when the network fails."},
	unix.AFS_SUPER_MAGIC:       {"AFS", Critical, "It is a network file system: locks and syncs do not keep what they promise when the network fails."},
	unix.CEPH_SUPER_MAGIC:      {"CephFS", Critical, "It is a network file system: locks and syncs do not keep what they promise when the network fails."},
	unix.V9FS_MAGIC:            {"9p", Critical, "It is a share of the host: locks and syncs do not keep what they promise."},
	unix.FUSE_SUPER_MAGIC:      {"FUSE", Warning, "Whether syncs reach a disk depends on the program behind it."},
}

func (e *examination) fileSystem(dir string) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		e.add(Critical, "file_system", fmt.Sprintf("%s cannot be examined: %v", dir, err), "A broker cannot keep data there.", "Choose another directory with data.")
		return
	}
	kind, ok := fileSystems[int64(s.Type)] //nolint:unconvert // It is narrower on some processors.
	switch {
	case !ok:
		e.add(Note, "file_system", fmt.Sprintf("the file system has the number %#x, which is not known", s.Type), "Whether it is local and syncs reach a disk is for you to know.", "Prefer ext4 or xfs on a local disk.")
	case kind.severity == OK:
		e.ok("file_system", "%s", kind.name)
	default:
		e.add(kind.severity, "file_system", "the data directory is on "+kind.name, kind.meaning, "Use ext4 or xfs on a local disk.")
	}
	if s.Flags&unix.ST_RDONLY != 0 {
		e.add(Critical, "file_system", "the file system is mounted read-only", "Either it was mounted so, or the kernel did it after an error of the disk.", "Look into the kernel's log (`dmesg`) for errors of the disk before you mount it for writing.")
	}
	free := s.Bavail * uint64(s.Bsize)
	switch {
	case free < e.MinFree:
		e.add(Critical, "space", fmt.Sprintf("%s free, and min_free is %s", size(free), size(e.MinFree)), "Publishes are refused (disk_full).", "Make room on the volume; see \"A full disk\" in docs/operations.md.")
	case free < 4*e.MinFree:
		e.add(Warning, "space", fmt.Sprintf("%s free, and min_free is %s", size(free), size(e.MinFree)), "Soon publishes will be refused (disk_full).", "Make room on the volume, or shorten the retention of large topics.")
	default:
		e.ok("space", "%s free", size(free))
	}
	if s.Files > 0 && s.Ffree < 10_000 {
		e.add(Warning, "inodes", fmt.Sprintf("%d inodes free", s.Ffree), "When none is left, no file can be made, however much room there is.", "Remove small files from the volume.")
	}
}

// A round of syncs is short, and long enough for a median.
const (
	syncRounds = 50
	syncBytes  = 4096
)

// syncs measures what each acknowledgement waits for.
func (e *examination) syncs(dir string) {
	took, err := measureSyncs(dir)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			e.add(Warning, "sync", "a file cannot be written in "+dir, "A broker under this user cannot start.", "Run doctor as the user that the broker runs as.")
		} else {
			e.add(Critical, "sync", fmt.Sprintf("writing and syncing failed: %v", err), "Nothing can be published.", "Look into the kernel's log (`dmesg`) for errors of the disk.")
		}
		return
	}
	slices.Sort(took)
	median, worst := took[len(took)/2], took[len(took)-1]
	what := fmt.Sprintf("a synced write takes %s, at worst %s", median.Round(time.Microsecond), worst.Round(time.Microsecond))
	switch {
	case median > 20*time.Millisecond:
		e.add(Warning, "sync", what, "Each acknowledgement waits for one, so publishing is slow; callers at one time share a sync.", "Use a disk with a write cache that survives a power cut, or publish in batches.")
	case median < 50*time.Microsecond:
		e.add(Note, "sync", what, "No disk is as fast without a cache. On a virtual disk the host may confirm what it has not written.", "See that the cache survives a power cut, or that the host writes through.")
	default:
		e.ok("sync", "%s", what)
	}
}

func measureSyncs(dir string) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".signalbox-doctor-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, syncBytes)
	for range syncRounds {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// descriptorsMin is for 11,000 connections and the tables of the store.
const descriptorsMin = 16_384

func (e *examination) descriptors() {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return
	}
	if limit.Max < descriptorsMin {
		e.add(Warning, "descriptors", fmt.Sprintf("at most %d files and connections", limit.Max), "With many readers the broker cannot open its own files.",
			"Raise it to 65536: LimitNOFILE= in the systemd unit, --ulimit nofile= for a container.")
		return
	}
	e.ok("descriptors", "at most %d files and connections", limit.Max)
}

// memoryMin is what a small broker needs with its caches and memtables.
const memoryMin = 512 << 20

func (e *examination) memory() {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return
	}
	total := uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // It is narrower on some processors.
	if limit, ok := number("/sys/fs/cgroup/memory.max"); ok {
		total = min(total, limit)
	}
	if total < memoryMin {
		e.add(Warning, "memory", size(total)+" of memory", "A broker with its caches takes up to 400 MiB; without that the kernel may end it.", "Give it 1 GiB.")
		return
	}
	e.ok("memory", "%s", size(total))
}

// number reads a file that holds one number.
func number(name string) (uint64, bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// goodClocks are clock sources that a program reads without a system call.
var goodClocks = []string{"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"}

func (e *examination) clock() {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		e.add(Note, "clock", fmt.Sprintf("the state of the clock cannot be read: %v", err), "", "See that the clock is set by NTP.")
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		e.add(Warning, "clock", "the clock is not synchronised", "Stamps of other machines will seem to be ahead and be refused (hlc_drift), or win without reason.",
			"Run an NTP client, such as chrony. In a container this is the host's concern.")
	default:
		e.ok("clock", "synchronised, estimated error %s", (time.Duration(t.Esterror) * time.Microsecond).String())
	}
	if b, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource"); err == nil {
		if source := strings.TrimSpace(string(b)); !slices.Contains(goodClocks, source) {
			e.add(Note, "clock_source", "the clock source is "+source, "Reading the time takes a system call, which every request does several times.", "Nothing, unless the broker is short of processor time.")
		}
	}
}

func (e *examination) kernel() {
	if n, ok := number("/proc/sys/vm/overcommit_memory"); ok && n == 2 {
		e.add(Warning, "kernel", "vm.overcommit_memory is 2", "Go reserves more memory than it uses, and may be refused it.", "Set it to 0 or 1.")
	}
	if n, ok := number("/proc/sys/net/core/somaxconn"); ok && n < 1024 {
		e.add(Warning, "kernel", fmt.Sprintf("net.core.somaxconn is %d", n), "When all readers reconnect at once, connections are dropped.", "Set it to 4096.")
	}
	if n, ok := number("/proc/sys/vm/max_map_count"); ok && n < 65_530 {
		e.add(Note, "kernel", fmt.Sprintf("vm.max_map_count is %d", n), "It is less than the default.", "Set it to 65530.")
	}
}

// holder names the process that has a directory open, from the lock on its
// LOCK file (proc_locks(5)).
func holder(dir string) string {
	var s unix.Stat_t
	if unix.Stat(filepath.Join(dir, "LOCK"), &s) != nil {
		return ""
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	inode := ":" + strconv.FormatUint(s.Ino, 10)
	for line := range strings.Lines(string(locks)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasSuffix(fields[5], inode) {
			continue
		}
		pid, err := strconv.Atoi(fields[4])
		if err != nil || pid <= 0 || pid > math.MaxInt32 {
			continue
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return fmt.Sprintf(" by %s, process %d", strings.TrimSpace(string(name)), pid)
	}
	return ""
}
