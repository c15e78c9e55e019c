// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-quicktest/qt"
)

func TestServiceOf(t *testing.T) {
	for _, test := range []struct {
		name        string
		environment []string
		want        map[string]string
	}{
		{"nothing", []string{"PATH=/bin"}, nil},
		{"a name", []string{"A=b", "OTEL_SERVICE_NAME=shop"},
			map[string]string{"service.name": "shop"}},
		{
			"attributes",
			[]string{"OTEL_RESOURCE_ATTRIBUTES=service.name=a%20b, service.namespace = n,deployment.environment.name=prod"},
			map[string]string{"service.name": "a b", "service.namespace": "n",
				"deployment.environment.name": "prod"},
		},
		{
			"the name counts more",
			[]string{"OTEL_SERVICE_NAME=shop",
				"OTEL_RESOURCE_ATTRIBUTES=service.name=other,service.version=1"},
			map[string]string{"service.name": "shop", "service.version": "1"},
		},
		{"an empty name", []string{"OTEL_SERVICE_NAME="}, nil},
		{"what a process must not say",
			[]string{"OTEL_RESOURCE_ATTRIBUTES=k8s.pod.uid=x,container.id=y,process.pid=1,service.instance.id=z"}, nil},
		{"malformed", []string{"OTEL_RESOURCE_ATTRIBUTES=,=,x,service.name,service.name=%zz"}, nil},
		{"a name that is too long",
			[]string{"OTEL_SERVICE_NAME=" + strings.Repeat("x", 1000)}, nil},
		{"no UTF-8", []string{"OTEL_SERVICE_NAME=\xffx"},
			map[string]string{"service.name": "\uFFFDx"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			qt.Assert(t,
				qt.DeepEquals(serviceOf(strings.Join(test.environment, "\x00")+"\x00"), test.want))
		})
	}
}

func FuzzServiceOf(f *testing.F) {
	f.Add("OTEL_SERVICE_NAME=shop\x00OTEL_RESOURCE_ATTRIBUTES=service.version=1%2E2,x=y\x00")
	f.Fuzz(func(t *testing.T, environment string) {
		for key, value := range serviceOf(environment) {
			qt.Check(t, qt.IsTrue(utf8.ValidString(value) && len(value) <= maxServiceValue))
			qt.Check(t, qt.IsTrue(value != "" && (strings.HasPrefix(key, "service.") ||
				strings.HasPrefix(key, "deployment."))))
		}
	})
}
