// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"time"
)

// Hold is for how long an answer has its endpoint left alone.
func Hold(answer *http.Response, now time.Time) time.Duration { return classify(answer, now).hold }
