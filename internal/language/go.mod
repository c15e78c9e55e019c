module github.com/gousdt/gousdt/internal/language

go 1.25.0

require (
	github.com/DataDog/go-sqllexer v0.2.6
	github.com/go-quicktest/qt v1.102.0
	github.com/gousdt/gousdt v0.0.0
	github.com/ianlancetaylor/demangle v0.0.0-20260724033716-83e58baca724
)

require (
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/kr/pretty v0.3.1 // indirect
	github.com/kr/text v0.2.0 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/rogpeppe/go-internal v1.14.1 // indirect
)

replace github.com/gousdt/gousdt => ../../
