module github.com/gousdt/gousdt/tools

go 1.25.0

require (
	github.com/go-quicktest/qt v1.102.0
	go.yaml.in/yaml/v3 v3.0.6
)

require (
	github.com/bitfield/gotestdox v0.2.2 // indirect
	github.com/dnephin/pflag v1.0.7 // indirect
	github.com/fatih/color v1.18.0 // indirect
	github.com/fsnotify/fsnotify v1.9.0 // indirect
	github.com/google/shlex v0.0.0-20191202100458-e7afc7fbc510 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	golang.org/x/mod v0.32.0 // indirect
	golang.org/x/sync v0.19.0 // indirect
	golang.org/x/sys v0.43.0 // indirect
	golang.org/x/term v0.37.0 // indirect
	golang.org/x/text v0.31.0 // indirect
	gotest.tools/gotestsum v1.13.0 // indirect
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/gousdt/gousdt v0.0.0
	github.com/kr/pretty v0.3.1 // indirect
	github.com/kr/text v0.2.0 // indirect
	github.com/rogpeppe/go-internal v1.14.1 // indirect
	golang.org/x/tools v0.41.0
)

replace github.com/gousdt/gousdt => ../

tool gotest.tools/gotestsum
