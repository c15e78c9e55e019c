module github.com/gousdt/gousdt/stack

go 1.25.0

require (
	github.com/cilium/ebpf v0.22.0
	github.com/go-quicktest/qt v1.102.0
	github.com/google/pprof v0.0.0-20260906184651-6331bc6350fe
	github.com/gousdt/gousdt v0.0.0
	github.com/gousdt/gousdt/internal/language v0.0.0
	github.com/therootcompany/xz v1.0.1
	golang.org/x/sys v0.43.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/ianlancetaylor/demangle v0.0.0-20260724033716-83e58baca724 // indirect
	github.com/kr/pretty v0.3.1 // indirect
	github.com/kr/text v0.2.0 // indirect
	github.com/rogpeppe/go-internal v1.14.1 // indirect
	golang.org/x/arch v0.29.0 // indirect
)

replace (
	github.com/gousdt/gousdt => ../
	github.com/gousdt/gousdt/internal/language => ../internal/language
)
