// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"bytes"
	"encoding/hex"
	"net/url"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// spanContext is what a W3C traceparent says.
type spanContext struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
	flags byte
}

// parseTraceparent reads a header of the form
// VERSION-TRACE-SPAN-FLAGS. A later version may have more at its end.
func parseTraceparent(header string) (c spanContext, ok bool) {
	const length = len("00-") + 32 + 1 + 16 + len("-01")
	if len(header) < length || header[2] != '-' || header[35] != '-' || header[52] != '-' {
		return c, false
	}
	version, ok := lowerHex(header[:2], 1)
	switch {
	case !ok || version[0] == 0xff:
		return c, false
	case len(header) > length && (version[0] == 0 || header[length] != '-'):
		return c, false
	}
	trace, ok1 := lowerHex(header[3:35], 16)
	span, ok2 := lowerHex(header[36:52], 8)
	flags, ok3 := lowerHex(header[53:55], 1)
	if !ok1 || !ok2 || !ok3 {
		return c, false
	}
	copy(c.trace[:], trace)
	copy(c.span[:], span)
	c.flags = flags[0]
	return c, !c.trace.IsEmpty() && !c.span.IsEmpty()
}

// lowerHex decodes hexadecimal digits, of which the header has no capital ones.
func lowerHex(s string, size int) ([]byte, bool) {
	b, err := hex.DecodeString(s)
	return b, err == nil && len(b) == size && s == strings.ToLower(s)
}

// commentParent reads the traceparent from the comment that sqlcommenter adds
// to a statement, as its last or first part:
//
//	SELECT 1 /*db_driver='x',traceparent='00-...-01'*/
//
// A comment elsewhere is not read: it may be a part of a text in quotes.
func commentParent(statement []byte, complete bool) (spanContext, bool) {
	trimmed := bytes.TrimRight(statement, " \t\r\n;")
	// Without the end of the comment: its star is none of a beginning "/*".
	if body, ok := bytes.CutSuffix(trimmed, []byte("*/")); ok && complete {
		if at := bytes.LastIndex(body, []byte("/*")); at >= 0 {
			if c, ok := inComment(body[at+2:]); ok {
				return c, true
			}
		}
	}
	trimmed = bytes.TrimLeft(statement, " \t\r\n")
	if rest, ok := bytes.CutPrefix(trimmed, []byte("/*")); ok {
		if comment, _, ok := bytes.Cut(rest, []byte("*/")); ok {
			return inComment(comment)
		}
	}
	return spanContext{}, false
}

// inComment reads KEY='VALUE' pairs, whose values are URL-encoded.
func inComment(comment []byte) (spanContext, bool) {
	for pair := range strings.SplitSeq(string(comment), ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || strings.TrimSpace(key) != "traceparent" {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), "'")
		if value, err := url.PathUnescape(value); err == nil {
			return parseTraceparent(value)
		}
	}
	return spanContext{}, false
}
