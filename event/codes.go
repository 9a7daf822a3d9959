// SPDX-License-Identifier: Apache-2.0

package event

// Code identifies a kind of error. The list is closed and append-only: a code
// never changes its meaning and is never removed. docs/errors.md is checked
// against it.
type Code string

// The codes, grouped as in the table below.
const (
	CodeEventInvalid         Code = "event_invalid"
	CodeAttributeReserved    Code = "attribute_reserved"
	CodeJSONInvalid          Code = "json_invalid"
	CodeDataInvalid          Code = "data_invalid"
	CodeHeaderInvalid        Code = "header_invalid"
	CodeBatchAborted         Code = "batch_aborted"
	CodeMediaTypeUnsupported Code = "media_type_unsupported"
	CodeEncodingUnsupported  Code = "encoding_unsupported"
	CodeEventTooLarge        Code = "event_too_large"
	CodeRequestTooLarge      Code = "request_too_large"
	CodeBatchTooLarge        Code = "batch_too_large"

	CodeTopicInvalid   Code = "topic_invalid"
	CodeTopicReserved  Code = "topic_reserved"
	CodeTopicUnknown   Code = "topic_unknown"
	CodeTopicLimit     Code = "topic_limit"
	CodeTopicEphemeral Code = "topic_ephemeral"
	CodeTopicFull      Code = "topic_full"
	CodeKeyRequired    Code = "key_required"
	CodeKeyInvalid     Code = "key_invalid"

	CodeHLCInvalid    Code = "hlc_invalid"
	CodeHLCRequired   Code = "hlc_required"
	CodeHLCDrift      Code = "hlc_drift"
	CodeHLCStale      Code = "hlc_stale"
	CodeHLCBehind     Code = "hlc_behind"
	CodeExpiryInvalid Code = "expiry_invalid"

	CodeIDReused              Code = "id_reused"
	CodeIDReserved            Code = "id_reserved"
	CodeConflict              Code = "conflict"
	CodePreconditionInvalid   Code = "precondition_invalid"
	CodeIdempotencyKeyInvalid Code = "idempotency_key_invalid"
	CodeIdempotencyKeyReused  Code = "idempotency_key_reused"

	CodePolicyInvalid   Code = "policy_invalid"
	CodePolicyImmutable Code = "policy_immutable"

	CodeSignedUnsupported Code = "signed_unsupported"
	CodeSchemaViolation   Code = "schema_violation"
	CodeDataNotJSON       Code = "data_not_json"
	CodePolicyChanged     Code = "policy_changed"

	CodeCursorInvalid     Code = "cursor_invalid"
	CodeCursorExpired     Code = "cursor_expired"
	CodeCursorForeign     Code = "cursor_foreign"
	CodeCursorUnknown     Code = "cursor_unknown"
	CodeValuesReset       Code = "values_reset"
	CodeViewInvalid       Code = "view_invalid"
	CodeNotCompacted      Code = "not_compacted"
	CodeKeyUnknown        Code = "key_unknown"
	CodeFilterUnsupported Code = "filter_unsupported"
	CodeFilterInvalid     Code = "filter_invalid"

	CodeSubscriptionInvalid  Code = "subscription_invalid"
	CodeSubscriptionUnknown  Code = "subscription_unknown"
	CodeSubscriptionConflict Code = "subscription_conflict"
	CodeSubscriptionLimit    Code = "subscription_limit"
	CodeProtocolUnsupported  Code = "protocol_unsupported"
	CodeDeadLetterUnknown    Code = "dead_letter_unknown"
	CodeSinkRefused          Code = "sink_refused"

	CodeMessageInvalid     Code = "message_invalid"
	CodeMessageTypeUnknown Code = "message_type_unknown"
	CodePayloadInvalid     Code = "payload_invalid"
	CodeSignatureInvalid   Code = "signature_invalid"
	CodeVerbUnknown        Code = "verb_unknown"
	CodeVerbDenied         Code = "verb_denied"
	CodeSecretRefused      Code = "secret_refused"

	CodeMessageRequired     Code = "message_required"
	CodeMessageStale        Code = "message_stale"
	CodeNonceReused         Code = "nonce_reused"
	CodeIdempotencyConflict Code = "idempotency_conflict"
	CodeNotPermitted        Code = "not_permitted"
	CodeTicketUnknown       Code = "ticket_unknown"
	CodeTicketExists        Code = "ticket_exists"
	CodeCorrelationInvalid  Code = "correlation_invalid"
	CodeAlreadyAnswered     Code = "already_answered"
	CodeVersionUnsupported  Code = "version_unsupported"

	CodeTicketMoveIllegal Code = "ticket_move_illegal"
	CodePlanConflict      Code = "plan_conflict"
	CodePlanStale         Code = "plan_stale"
	CodeDeadlineMissed    Code = "deadline_missed"
	CodeApprovalRequired  Code = "approval_required"
	CodeApprovalClosed    Code = "approval_closed"
	CodeGrantBound        Code = "grant_bound"
	CodeSelfApproval      Code = "self_approval"

	CodeUnauthenticated Code = "unauthenticated"
	CodeTokenInvalid    Code = "token_invalid"
	CodeRightsChanged   Code = "rights_changed"

	CodeAgentInvalid  Code = "agent_invalid"
	CodeAgentUnknown  Code = "agent_unknown"
	CodeAgentConflict Code = "agent_conflict"
	CodeAgentLimit    Code = "agent_limit"

	CodeParameterInvalid Code = "parameter_invalid"
	CodeNotAcceptable    Code = "not_acceptable"
	CodeNotFound         Code = "not_found"
	CodeMethodNotAllowed Code = "method_not_allowed"
	CodeHostRefused      Code = "host_refused"
	CodeOriginRefused    Code = "origin_refused"
	CodeHandshakeInvalid Code = "handshake_invalid"

	CodeAuditWaiting Code = "audit_waiting"
	CodeDiskFull     Code = "disk_full"
	CodeOverloaded   Code = "overloaded"
	CodeShuttingDown Code = "shutting_down"
	CodeInternal     Code = "internal"
	CodeStoreDamaged Code = "store_damaged"
	CodeStoreLocked  Code = "store_locked"
	CodeStoreFormat  Code = "store_format"

	CodeOutboxFull     Code = "outbox_full"
	CodeLedgerFull     Code = "ledger_full"
	CodeJournalDamaged Code = "journal_damaged"
	CodeBackupInvalid  Code = "backup_invalid"
)

// Class is what a code means at the doors of the broker.
type Class struct {
	HTTP      int    // HTTP status
	Exit      int    // exit status of the command line
	Retryable bool   // the same request may succeed later without a change
	Title     string // a few words, the same for every error of the code
	Action    string // one sentence: what the caller should do
}

// Exit statuses. 75 is EX_TEMPFAIL of sysexits.h: try again later.
const (
	exitFailure = 1
	exitCaller  = 2
	exitDamaged = 3
	exitLocked  = 4
	exitFormat  = 5
	exitRetry   = 75
)

// Class returns what c means; a code that is not in the list is [CodeInternal].
func (c Code) Class() Class {
	for i := range classes {
		if classes[i].code == c {
			return classes[i].class
		}
	}
	return CodeInternal.Class()
}

// Codes returns every code, in the order of the documentation.
func Codes() []Code {
	codes := make([]Code, len(classes))
	for i := range classes {
		codes[i] = classes[i].code
	}
	return codes
}
