// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
)

func TestExplore(t *testing.T) {
	fs := vfs.NewCrashableMem()
	r := newRig(t, fs, nil)
	r.putTopic("c", compact)
	rs := r.fill("c", "a", 100)
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	r.close()
	r.mustVerify()
	r = &rig{t: t, fs: crashed}
	rep := r.mustVerify()
	fmt.Printf("%+v\n", rep)
	fmt.Println(r.files(""), len(rs))
	log := r.files(".log")
	name := log[len(log)-1]
	intact := r.readFile(name)
	fmt.Println(name, len(intact))
	res := map[string]int{}
	for i := 0; i < len(intact); i += 97 {
		c := &rig{t: t, fs: crashed.CrashClone(vfs.CrashCloneCfg{})}
		b := append([]byte(nil), intact...)
		b[i] ^= 0x40
		c.writeFile(name, b)
		rep := c.verify()
		code := "ok"
		if rep.Total > 0 {
			code = rep.Findings[0].What
		}
		res[code]++
		if code == "ok" && i < len(intact)-1500 {
			fmt.Println(i, rep.Cursor)
		}
		_ = event.CodeConflict
	}
	fmt.Println(res)
}
