module github.com/gousdt/gousdt/tools/bench

go 1.25.0

require (
	github.com/cilium/ebpf v0.22.0
	github.com/go-quicktest/qt v1.102.0
	github.com/gousdt/gousdt v0.0.0
	golang.org/x/sys v0.43.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/kr/pretty v0.3.1 // indirect
	github.com/kr/text v0.2.0 // indirect
	github.com/rogpeppe/go-internal v1.14.1 // indirect
	golang.org/x/arch v0.29.0 // indirect
)

replace github.com/gousdt/gousdt => ../../
