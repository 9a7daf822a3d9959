// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"signalbox/api"
	"signalbox/event"
	"signalbox/internal/transport/web"
)

// contract is the parsed document and a router over it.
var contract = sync.OnceValues(func() (*openapi3.T, routers.Router) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(api.OpenAPI)
	if err != nil {
		panic("api/openapi.yaml: " + err.Error())
	}
	if err := doc.Validate(loader.Context); err != nil {
		panic("api/openapi.yaml: " + err.Error())
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		panic("api/openapi.yaml: " + err.Error())
	}
	asText := func(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		b, err := io.ReadAll(body)
		return string(b), err
	}
	for _, mediaType := range []string{"text/event-stream", "application/x-ndjson", "application/x-tar", "text/markdown"} {
		openapi3filter.RegisterBodyDecoder(mediaType, asText)
	}
	return doc, router
})

// checkContract holds a request and its answer against the document. Requests
// that were refused are not checked themselves, since most break it.
func checkContract(t *testing.T, req *http.Request, q request, a answer) {
	t.Helper()
	if q.unchecked || req.Method == http.MethodHead || req.Method == http.MethodOptions {
		return
	}
	_, router := contract()
	copied := req.Clone(context.Background())
	copied.URL.Scheme, copied.URL.Host, copied.Host = "", "", ""
	route, params, err := router.FindRoute(copied)
	if err != nil {
		if a.status < 400 {
			t.Errorf("%s %s is not in api/openapi.yaml (%v) but was answered with %d", req.Method, req.URL.Path, err, a.status)
		}
		return
	}
	copied.Body = io.NopCloser(strings.NewReader(q.body))
	in := &openapi3filter.RequestValidationInput{Request: copied, PathParams: params, Route: route,
		Options: &openapi3filter.Options{ExcludeRequestBody: binaryMode(req), AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if a.status < 400 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			t.Errorf("%s %s was accepted, but api/openapi.yaml refuses it: %v", req.Method, req.URL, err)
		}
	}
	if a.status == http.StatusMethodNotAllowed || a.status == http.StatusNoContent {
		return
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: a.status, Header: a.header,
		Body: io.NopCloser(bytes.NewReader(a.body)), Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		t.Errorf("%s %s: the answer %d is not as in api/openapi.yaml: %v\n%s", req.Method, req.URL, a.status, err, clip(a.body))
	}
}

// binaryMode tells bodies that are data of any kind.
func binaryMode(req *http.Request) bool {
	return req.Method == http.MethodPost && !strings.HasPrefix(strings.ToLower(req.Header.Get("Content-Type")), "application/cloudevents")
}

func TestDocumentAgreesWithRoutes(t *testing.T) {
	doc, _ := contract()
	documented := map[string][]string{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			var params []string
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				if p.Value.In == openapi3.ParameterInQuery {
					params = append(params, p.Value.Name)
				}
			}
			slices.Sort(params)
			documented[method+" "+path] = params
		}
	}
	for _, rt := range web.Routes() {
		path := strings.NewReplacer("{$}", "", "...}", "}").Replace(rt.Path)
		params, ok := documented[rt.Method+" "+path]
		if !ok {
			t.Errorf("%s %s is served but not in api/openapi.yaml", rt.Method, path)
			continue
		}
		delete(documented, rt.Method+" "+path)
		served := slices.Sorted(slices.Values(rt.Params))
		sameList(t, "the query of "+rt.Method+" "+path+" in the document", params, served)
	}
	for what := range documented {
		t.Errorf("%s is in api/openapi.yaml but not served", what)
	}
}

func TestDocumentHasEveryCode(t *testing.T) {
	doc, _ := contract()
	var documented []string
	for _, v := range doc.Components.Schemas["Code"].Value.Enum {
		documented = append(documented, v.(string))
	}
	var codes []string
	for _, c := range event.Codes() {
		codes = append(codes, string(c))
	}
	sameList(t, "the enumeration of codes in api/openapi.yaml", documented, codes)
}

func TestDocumentIsServed(t *testing.T) {
	d := openDoor(t)
	a := d.get("/openapi.yaml").want(t, 200)
	eq(t, "Content-Type", a.header.Get("Content-Type"), "application/yaml")
	if !bytes.Equal(a.body, api.OpenAPI) {
		t.Error("GET /openapi.yaml is not api/openapi.yaml")
	}
}

// TestDocumentExamplesAreAccepted sends what the document shows.
func TestDocumentExamplesAreAccepted(t *testing.T) {
	d := openDoor(t)
	doc, _ := contract()
	sent := 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil {
				continue
			}
			for mediaType, content := range op.RequestBody.Value.Content {
				if content.Example == nil {
					continue
				}
				body, err := jsonText(content.Example)
				if err != nil {
					t.Fatal(err)
				}
				path := strings.NewReplacer("{topic}", "fleet.example"+strings.ToLower(method), "{agent}", "%2Fagents%2Fbeta").Replace(path)
				if strings.Contains(path, "{id}") {
					path = strings.ReplaceAll(path, "{id}", d.subscribe(`{"protocol":"SIGNALBOX"}`))
				}
				a := d.do(request{method: method, path: path, body: body, header: []string{"Content-Type: " + mediaType}})
				if a.status >= 300 {
					t.Errorf("the example of %s %s is refused: %s", method, path, a.body)
				}
				sent++
			}
		}
	}
	if sent < 2 {
		t.Error(errors.New("the document has no examples"))
	}
}
