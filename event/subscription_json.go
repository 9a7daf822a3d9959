// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ParseSubscription reads a document of the Subscriptions API strictly: a member
// that is unknown or comes twice is refused, because a filter that was
// misspelt would deliver everything. The standard's own documents spell some
// names in two ways (sinkcredential and sinkCredential, filter and filters), so
// its names are read in any case, and a single filter as a list of one. Clients
// that write all members have null for those that they leave out.
func ParseSubscription(b []byte) (Subscription, error) {
	s := Subscription{Config: DefaultSubscriptionConfig()}
	s.Config.MaxAttempts = 0 // whose default depends on the kind
	if len(b) > MaxSubscriptionBytes {
		return Subscription{}, Errorf(CodeSubscriptionInvalid, "The document has %d bytes; use at most %d.", len(b), MaxSubscriptionBytes)
	}
	if err := eachMember(b, "", func(name string, v jsontext.Value) error { return s.set(strings.ToLower(name), v) }); err != nil {
		return Subscription{}, err
	}
	if err := s.Validate(); err != nil {
		return Subscription{}, err
	}
	return s, nil
}

// eachMember calls use with the members of a JSON object and nothing but it.
func eachMember(b []byte, what string, use func(name string, v jsontext.Value) error) error {
	seen := map[string]bool{}
	d := jsontext.NewDecoder(bytes.NewBuffer(b))
	if d.PeekKind() != jsontext.KindBeginObject {
		return Errorf(CodeSubscriptionInvalid, "%s is not a JSON object.", cmpOr(what, "The document")).With(what)
	}
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() == jsontext.KindString {
		var token jsontext.Token
		var value jsontext.Value
		if token, err = d.ReadToken(); err != nil {
			break
		}
		name := token.String()
		if value, err = d.ReadValue(); err != nil {
			break
		}
		// Names that differ by case are the same name in two spellings.
		if folded := strings.ToLower(name); seen[folded] {
			return Errorf(CodeSubscriptionInvalid, "The member %q is there in two spellings.", clip(name)).With(clip(name))
		} else {
			seen[folded] = true
		}
		if err := use(name, value); err != nil {
			return err
		}
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	if err != nil {
		_, field, detail := explainSyntax(err)
		return Errorf(CodeSubscriptionInvalid, "The document is not valid JSON: %s.", detail).With(field)
	}
	if !blank(b[d.InputOffset():]) {
		return Errorf(CodeSubscriptionInvalid, "The document has text after its JSON object.")
	}
	return nil
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// members are those of a document, and configMembers those of its config of which null
// is the same as nothing; of the others it means never.
var (
	members       = []string{"id", "status", "source", "types", "sink", "protocol", "filter", "filters", "sinkcredential", "protocolsettings", "config"}
	configMembers = []string{
		"kind", "topics", "view", "start", "order", "select", "max_attempts", "quarantine_after", "max_redrives", "max_outstanding", "max_parked",
		"visibility", "content_mode", "signature", "secrets", "handshake",
	}
)

// set takes one member of the document.
func (s *Subscription) set(name string, v jsontext.Value) error {
	if v.Kind() == jsontext.KindNull && slices.Contains(members, name) {
		return nil
	}
	ok := true
	switch name {
	case "id": // the standard: MUST be ignored
	case "status": // what the broker answered may be sent back
	case "source":
		s.Source, ok = jsonString(v)
		ok = ok && s.Source != ""
	case "types":
		s.Types, ok = jsonStrings(v)
	case "sink":
		s.Sink, ok = jsonString(v)
		ok = ok && isURIReference([]byte(s.Sink))
	case "protocol":
		s.Protocol, ok = jsonString(v)
	case "filter":
		if v.Kind() != jsontext.KindBeginObject || s.Filters != nil {
			return subscriptionFault(name, "is not one filter expression beside no filters")
		}
		s.Filters = slices.Concat([]byte{'['}, compacted(v), []byte{']'})
	case "filters":
		ok = v.Kind() == jsontext.KindBeginArray && s.Filters == nil
		if filters := compacted(v); len(filters) > len("[]") {
			s.Filters = filters
		}
	case "sinkcredential":
		return s.setCredential(v)
	case "protocolsettings":
		settings, err := folded(v, name, func(string, jsontext.Value) bool { return true })
		if err == nil && len(settings) > len("{}") {
			s.ProtocolSettings = settings
		}
		return err
	case "config":
		if v.Kind() != jsontext.KindBeginObject {
			return subscriptionFault("config", "is not a JSON object")
		}
		return eachMember(v, "config", s.Config.set)
	default:
		return Errorf(CodeSubscriptionInvalid, "A subscription has no member %q.", clip(name)).With(clip(name))
	}
	if !ok {
		return subscriptionFault(name, "has a value of the wrong type, or an empty one")
	}
	return nil
}

// setCredential takes the credential for the sink, whose members are strings.
func (s *Subscription) setCredential(v jsontext.Value) (err error) {
	given := map[string]string{}
	s.SinkCredential, err = folded(v, "sinkcredential", func(name string, v jsontext.Value) (ok bool) {
		given[name], ok = jsonString(v)
		return ok
	})
	if err != nil {
		return err
	}
	token := []string{"accesstoken", "accesstokenexpiresutc"} // the type is bearer by default in OpenAPI
	needed := map[string][]string{
		"PLAIN": {"identifier", "secret"}, "ACCESSTOKEN": token, "REFRESHTOKEN": append(token, "refreshtoken", "refreshtokenendpoint"),
	}[given["credentialtype"]]
	if needed == nil {
		return subscriptionFault("sinkcredential.credentialtype", "is not PLAIN, ACCESSTOKEN or REFRESHTOKEN")
	}
	if len(given) == 1 {
		return nil // as it is shown: whoever sends a document back keeps what there is
	}
	for _, name := range needed {
		if given[name] == "" {
			return subscriptionFault("sinkcredential."+name, "is missing, and the credential's type needs it")
		}
	}
	return nil
}

// folded is an object with its names in lower case.
func folded(v jsontext.Value, what string, check func(name string, v jsontext.Value) bool) ([]byte, error) {
	dst := []byte{'{'}
	err := eachMember(v, what, func(name string, v jsontext.Value) error {
		name = strings.ToLower(name)
		if !check(name, v) {
			return subscriptionFault(what+"."+clip(name), "has a value of the wrong type")
		}
		dst = append(appendString(dst, name), ':')
		dst = append(append(dst, compacted(v)...), ',')
		return nil
	})
	return append(bytes.TrimSuffix(dst, []byte{','}), '}'), err
}

// compacted is a copy without white space.
func compacted(v jsontext.Value) []byte {
	out := v.Clone()
	_ = out.Compact() // the value was read, so it is valid
	return out
}

// legible writes JSON as people read it: where documents are stored a > is escaped, and so is U+2028.
func legible(v jsontext.Value) jsontext.Value {
	if !bytes.Contains(v, []byte(`\u`)) {
		return v
	}
	out := v.Clone()
	_ = out.Compact(jsontext.PreserveRawStrings(false)) // the value was read, so it is valid
	return out
}

// set takes one member of the config. The standard's type for its values is
// string, so numbers and lists may come as strings, too.
func (c *SubscriptionConfig) set(name string, v jsontext.Value) error {
	if v.Kind() == jsontext.KindNull && slices.Contains(configMembers, name) {
		return nil
	}
	var ok bool
	switch name {
	case "kind":
		c.Kind, ok = jsonString(v)
	case "topics":
		c.Topics, ok = jsonList(v)
	case "view":
		c.View, ok = jsonString(v)
		ok = ok && c.View != ""
	case "start":
		c.Start, ok = jsonString(v)
	case "order":
		c.Order, ok = jsonString(v)
	case "select":
		c.Select, ok = jsonList(v)
	case "max_attempts":
		c.MaxAttempts, ok = jsonInt(v)
		ok = ok && c.MaxAttempts != 0 // which stands for the default
	case "quarantine_after":
		c.QuarantineAfter, ok = jsonInt(v)
	case "max_redrives":
		c.MaxRedrives, ok = jsonInt(v)
	case "max_outstanding":
		c.MaxOutstanding, ok = jsonInt(v)
	case "max_parked":
		c.MaxParked, ok = jsonInt(v)
	case "expires_after":
		return c.setDuration(&c.ExpiresAfter, name, v)
	case "visibility":
		return c.setDuration(&c.Visibility, name, v)
	case "dead_letter_retention":
		return c.setDuration(&c.DeadLetterRetention, name, v)
	case "disable_after":
		return c.setDuration(&c.DisableAfter, name, v)
	default:
		var known bool
		if known, ok = c.setWebhook(name, v); !known {
			return Errorf(CodeSubscriptionInvalid, "The config has no member %q.", clip(name)).With("config." + clip(name))
		}
	}
	if !ok {
		return subscriptionFault("config."+name, "has a value of the wrong type or out of range")
	}
	return nil
}

func (c *SubscriptionConfig) setDuration(d *Duration, name string, v jsontext.Value) error {
	if v.Kind() == jsontext.KindNull {
		*d = 0
		return nil
	}
	value, err := jsonDuration(v)
	if err != nil {
		err.Code = CodeSubscriptionInvalid
		return err.With("config." + name)
	}
	*d = value
	return nil
}

// jsonStrings reads an array of strings, none of them twice.
func jsonStrings(v jsontext.Value) (list []string, ok bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(v))
	if d.PeekKind() != jsontext.KindBeginArray {
		return nil, false
	}
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() == jsontext.KindString {
		var token jsontext.Token
		if token, err = d.ReadToken(); err == nil && !slices.Contains(list, token.String()) {
			list = append(list, token.String())
		}
	}
	return list, err == nil && d.PeekKind() == jsontext.KindEndArray
}

// jsonList reads an array of strings, or a string with commas between them.
func jsonList(v jsontext.Value) ([]string, bool) {
	if text, ok := jsonString(v); ok {
		return strings.Split(text, ","), text != ""
	}
	return jsonStrings(v)
}

func jsonInt(v jsontext.Value) (int, bool) {
	text := string(v)
	if quoted, ok := jsonString(v); ok {
		text = quoted
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// AppendJSON appends the document. Secrets are write-only: of the credential
// only its type is shown, unless secrets are asked for, to be stored.
func (s *Subscription) AppendJSON(dst []byte, secrets bool) []byte {
	dst = append(dst, '{')
	if s.ID != "" {
		dst = append(appendString(append(dst, `"id":`...), s.ID), ',')
	}
	if s.Source != "" {
		dst = append(appendString(append(dst, `"source":`...), s.Source), ',')
	}
	if len(s.Types) > 0 {
		dst = append(appendStrings(append(dst, `"types":`...), s.Types), ',')
	}
	dst = append(s.Config.appendJSON(append(dst, `"config":`...), secrets), ',')
	if s.Filters != nil {
		filters := s.Filters
		if !secrets {
			filters = legible(filters)
		}
		dst = append(append(append(dst, `"filters":`...), filters...), ',')
	}
	if s.Sink != "" {
		dst = append(appendString(append(dst, `"sink":`...), s.Sink), ',')
	}
	if s.SinkCredential != nil {
		dst = append(s.appendCredential(append(dst, `"sinkcredential":`...), secrets), ',')
	}
	if s.ProtocolSettings != nil {
		dst = append(append(append(dst, `"protocolsettings":`...), s.ProtocolSettings...), ',')
	}
	dst = appendString(append(dst, `"protocol":`...), s.Protocol)
	return append(dst, '}')
}

func (s *Subscription) appendCredential(dst []byte, secrets bool) []byte {
	if secrets {
		return append(dst, s.SinkCredential...)
	}
	kind, _ := LookupJSON(s.SinkCredential, "credentialtype")
	return append(appendString(append(dst, `{"credentialtype":`...), kind), '}')
}

// MarshalJSON writes the document with its secrets, for whoever sends it on. What
// the broker answers has none, see [Subscription.AppendJSON].
func (s Subscription) MarshalJSON() ([]byte, error) { return s.AppendJSON(nil, true), nil }

// UnmarshalJSON reads a document as the broker stores or answers it, the id
// included.
func (s *Subscription) UnmarshalJSON(b []byte) error {
	parsed, err := ParseSubscription(b)
	if err != nil {
		return err
	}
	parsed.ID, _ = LookupJSON(b, nameID)
	*s = parsed
	return nil
}

func (c *SubscriptionConfig) appendJSON(dst []byte, secrets bool) []byte {
	dst = appendString(append(dst, `{"kind":`...), c.Kind)
	dst = appendStrings(append(dst, `,"topics":`...), c.Topics)
	if c.View != "" {
		dst = appendString(append(dst, `,"view":`...), c.View)
	}
	dst = appendString(append(dst, `,"start":`...), c.Start)
	dst = appendString(append(dst, `,"order":`...), c.Order)
	if len(c.Select) > 0 {
		dst = appendStrings(append(dst, `,"select":`...), c.Select)
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"max_attempts", c.MaxAttempts}, {"quarantine_after", c.QuarantineAfter}, {"max_redrives", c.MaxRedrives},
		{"max_outstanding", c.MaxOutstanding}, {"max_parked", c.MaxParked},
	} {
		if f.name == "max_attempts" && f.value == 0 {
			continue // the default of its kind
		}
		dst = append(append(append(dst, `,"`...), f.name...), `":`...)
		dst = strconv.AppendInt(dst, int64(f.value), 10)
	}
	for _, f := range []struct {
		name  string
		value Duration
	}{{"visibility", c.Visibility}, {"expires_after", c.ExpiresAfter}, {"dead_letter_retention", c.DeadLetterRetention}} {
		dst = appendDuration(dst, f.name, f.value)
	}
	if c.Kind == KindWebhook {
		dst = c.WebhookConfig.appendJSON(dst, secrets)
	}
	return append(dst, '}')
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, s)
	}
	return append(dst, ']')
}
