// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
)

// topTopicsMax is up to how many topics top asks for all of them: the list of a hundred thousand would be most of what
// the broker does.
const topTopicsMax = 2000

func (a *app) topCommand() *cobra.Command {
	var once bool
	every := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what a broker is doing, live",
		Long: "Show rates, latencies, readers and how far they are behind, the disk, what is refused, and the busiest topics. On a\n" +
			"terminal the screen is redrawn until you press Ctrl-C; elsewhere one JSON object per line is printed. With --once it\n" +
			"looks twice, prints what happened in between, and ends.\n\n" +
			"The figures are those of /metrics and /v1/readers; docs/metrics.md says what each means.",
		Example: "  signalbox top --once --every 200ms --format text\n" +
			"  signalbox top --once --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return usagef("--every is at least 100ms")
			}
			return a.top(cmd.Context(), every, once)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print once and end")
	cmd.Flags().DurationVar(&every, "every", every, "how often to look")
	return cmd
}

func (a *app) top(ctx context.Context, every time.Duration, once bool) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	before, err := lookAt(ctx, c)
	if err != nil {
		return err
	}
	redraw := text && !once && isTerminal(a.out)
	if redraw {
		// The other screen, without a cursor; both are put back in the end.
		_, _ = io.WriteString(a.out, "\x1b[?1049h\x1b[?25l")
		defer func() { _, _ = io.WriteString(a.out, "\x1b[?25h\x1b[?1049l") }()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := lookAt(ctx, c)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.writeTop(compare(a.url, before, now), text, redraw); err != nil || once {
			return err
		}
		before = now
	}
}

func (a *app) writeTop(v topView, text, redraw bool) error {
	if !text {
		return writeJSON(a.out, v)
	}
	var b bytes.Buffer
	if redraw {
		b.WriteString("\x1b[H")
	}
	v.render(&b)
	screen := b.Bytes()
	if redraw { // what was longer before is wiped out line by line, which does not flicker
		screen = append(bytes.ReplaceAll(screen, []byte("\n"), []byte("\x1b[K\n")), "\x1b[J"...)
	}
	_, err := a.out.Write(screen)
	return err
}

// look is what was seen of a broker at one moment.
type look struct {
	at      time.Time
	metrics client.Metrics
	readers client.Readers
	topics  []client.TopicInfo // nil if there are too many
}

func lookAt(ctx context.Context, c *client.Client) (l look, err error) {
	if l.metrics, err = c.Metrics(ctx); err != nil {
		return l, err
	}
	l.at = time.Now()
	if l.readers, err = c.Readers(ctx); err != nil {
		return l, err
	}
	if l.metrics["signalbox_topics"] <= topTopicsMax {
		l.topics, err = c.Topics(ctx)
	}
	return l, err
}
