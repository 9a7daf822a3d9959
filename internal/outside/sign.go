// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Credentials sign requests to an S3-compatible object store: AWS Signature Version 4
// with the signature in the Authorization header and the hash of the whole body. Two
// requests are all that is needed of such a store; an SDK for them would be some two
// hundred packages.
type Credentials struct {
	AccessKey, SecretKey string
	SessionToken         string // "": none
	Region               string
}

const (
	signAlgorithm = "AWS4-HMAC-SHA256"
	signService   = "s3"
)

// sign signs all headers that the request has, and adds those that it needs.
func (c *Credentials) sign(req *http.Request, body []byte, now time.Time) {
	at := now.UTC().Format("20060102T150405Z")
	req.Header.Set("X-Amz-Date", at)
	req.Header.Set("X-Amz-Content-Sha256", hexSum(body))
	if c.SessionToken != "" {
		req.Header.Set("X-Amz-Security-Token", c.SessionToken)
	}
	headers := map[string]string{"host": req.URL.Host}
	names := []string{"host"}
	for name, values := range req.Header {
		name = strings.ToLower(name)
		names = append(names, name)
		headers[name] = strings.TrimSpace(strings.Join(values, ","))
	}
	slices.Sort(names)
	var canonical strings.Builder
	canonical.WriteString(req.Method + "\n" + escapePath(req.URL.Path) + "\n" + req.URL.Query().Encode() + "\n")
	for _, name := range names {
		canonical.WriteString(name + ":" + headers[name] + "\n")
	}
	signed := strings.Join(names, ";")
	canonical.WriteString("\n" + signed + "\n" + req.Header.Get("X-Amz-Content-Sha256"))
	scope := at[:8] + "/" + c.Region + "/" + signService + "/aws4_request"
	text := signAlgorithm + "\n" + at + "\n" + scope + "\n" + hexSum([]byte(canonical.String()))
	key := []byte("AWS4" + c.SecretKey)
	for _, part := range strings.Split(scope, "/") {
		key = keyed(key, part)
	}
	req.Header.Set("Authorization", signAlgorithm+" Credential="+c.AccessKey+"/"+scope+",SignedHeaders="+signed+",Signature="+hex.EncodeToString(keyed(key, text)))
}

func keyed(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// escapePath escapes a path once, as the signature wants it: all but unreserved
// characters (RFC 3986, section 2.3) and slashes.
func escapePath(path string) string {
	const digits = "0123456789ABCDEF"
	if path == "" {
		return "/"
	}
	var b strings.Builder
	for i := range len(path) {
		switch c := path[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~/", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}
