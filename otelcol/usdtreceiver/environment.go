// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"io"
	"net/url"
	"os"
	"strings"
)

const (
	// maxEnvironment bounds what is read of a process's environment. The kernel
	// lets one have megabytes.
	maxEnvironment = 256 << 10

	// maxServiceValue bounds a value that a process chose. Names of services
	// are short.
	maxServiceValue = 256
)

// readService returns the attributes of the service from a file such as
// /proc/PID/environ.
func readService(file string) map[string]string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxEnvironment))
	return serviceOf(string(text))
}

// serviceOf returns the attributes that describe the service, from the
// variables OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME, of which the latter
// counts more. Others are not taken: a process must not say in which pod it is.
// service.instance.id is not taken, since children inherit it.
func serviceOf(environment string) map[string]string {
	found := make(map[string]string)
	name := ""
	for variable := range strings.SplitSeq(environment, "\x00") {
		if list, ok := strings.CutPrefix(variable, "OTEL_RESOURCE_ATTRIBUTES="); ok {
			addAttributes(found, list)
		}
		if value, ok := strings.CutPrefix(variable, "OTEL_SERVICE_NAME="); ok {
			name = value
		}
	}
	if name != "" {
		addValue(found, attributeServiceName, name)
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

func addAttributes(to map[string]string, list string) {
	for pair := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			continue
		}
		switch key = strings.TrimSpace(key); key {
		case attributeServiceName, "service.namespace", "service.version",
			"deployment.environment.name", "deployment.environment":
			if value, err := url.PathUnescape(strings.TrimSpace(value)); err == nil {
				addValue(to, key, value)
			}
		}
	}
}

func addValue(to map[string]string, key, value string) {
	value = validText(value)
	if value != "" && len(value) <= maxServiceValue {
		to[key] = value
	}
}
