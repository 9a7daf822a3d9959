// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// floorMain serves the cheapest conceivable Go broker:
//
//	POST /append   answered after a group commit to the log (-log)
//	POST /publish  the body is sent as one SSE event to every reader
//	GET  /sse      read
//
// There is no parsing, no filter, no state, and fan-out has no log.
func floorMain(args []string) error {
	fs := flag.NewFlagSet("floor", flag.ContinueOnError)
	addr := fs.String("addr", "127.0.0.1:18091", "address to listen on")
	log := fs.String("log", "", "log of POST /append: raw | pebble-co")
	dir := fs.String("dir", "", "directory of the log, emptied at start")
	life := fs.Duration("life", 10*time.Minute, "exit after")
	if err := fs.Parse(args); err != nil {
		return err
	}
	time.AfterFunc(*life, func() {
		fmt.Fprintln(os.Stderr, "lg floor: end of -life")
		os.Exit(1)
	})
	mux := http.NewServeMux()
	if *log != "" {
		commit, err := openLog(*log, *dir)
		if err != nil {
			return err
		}
		mux.HandleFunc("/append", appendHandler(coalesce(1024, commit)))
	}
	f := &fanout{readers: map[chan []byte]struct{}{}}
	mux.HandleFunc("/publish", f.publish)
	mux.HandleFunc("/sse", f.read)
	return http.ListenAndServe(*addr, mux)
}

func appendHandler(queue chan<- waiter) http.HandlerFunc {
	ok := []byte("ok")
	return func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, max(0, r.ContentLength))
		if _, err := io.ReadFull(r.Body, b); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		done := make(chan error, 1)
		queue <- waiter{b, done}
		if err := <-done; err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(ok)
	}
}

// fanout is one goroutine and one channel per reader.
type fanout struct {
	mu      sync.RWMutex
	readers map[chan []byte]struct{}
}

func (f *fanout) publish(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	frame := make([]byte, 0, len(b)+8)
	frame = append(append(append(frame, "data: "...), b...), "\n\n"...)
	f.mu.RLock()
	for c := range f.readers {
		select {
		case c <- frame:
		default: // A slow reader loses it: this floor promises nothing.
		}
	}
	f.mu.RUnlock()
	_, _ = io.WriteString(w, "ok")
}

func (f *fanout) read(w http.ResponseWriter, r *http.Request) {
	frames := make(chan []byte, 64)
	f.mu.Lock()
	f.readers[frames] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.readers, frames)
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	_, _ = io.WriteString(w, ":ok\n\n")
	_ = rc.Flush()
	for {
		select {
		case frame := <-frames:
			if _, err := w.Write(frame); err != nil {
				return
			}
			for k := len(frames); k > 0; k-- { // What waits already goes out with it.
				_, _ = w.Write(<-frames)
			}
			if rc.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
