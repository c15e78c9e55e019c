module github.com/gousdt/gousdt/tools/bench/coverage

go 1.26.0

require (
	github.com/cilium/tetragon v1.7.1
	github.com/go-quicktest/qt v1.102.0
	github.com/gousdt/gousdt v0.0.0
)

require (
	github.com/cilium/ebpf v0.22.0 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/kr/pretty v0.3.1 // indirect
	github.com/kr/text v0.2.0 // indirect
	github.com/rogpeppe/go-internal v1.14.1 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/gousdt/gousdt => ../../../
