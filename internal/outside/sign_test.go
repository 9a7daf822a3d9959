// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSignaturesOfTheSpecification: the examples of "Authenticating Requests: Using the
// Authorization Header (AWS Signature Version 4)" in the Amazon S3 API Reference.
func TestSignaturesOfTheSpecification(t *testing.T) {
	c := &Credentials{AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", Region: "us-east-1"}
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for _, example := range []struct {
		method, url, body, want string
		header                  http.Header
	}{
		{"GET", "https://examplebucket.s3.amazonaws.com/test.txt", "", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", http.Header{"Range": {"bytes=0-9"}}},
		{"PUT", "https://examplebucket.s3.amazonaws.com/test%24file.text", "Welcome to Amazon S3.", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
			http.Header{"Date": {"Fri, 24 May 2013 00:00:00 GMT"}, "X-Amz-Storage-Class": {"REDUCED_REDUNDANCY"}}},
		{"GET", "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", "", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7", http.Header{}},
	} {
		req, err := http.NewRequest(example.method, example.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = example.header
		c.sign(req, []byte(example.body), at)
		if got := req.Header.Get("Authorization"); !strings.HasSuffix(got, ",Signature="+example.want) || !strings.Contains(got, "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,") {
			t.Errorf("%s %s is signed %s, want %s", example.method, example.url, got, example.want)
		}
	}
}
