module github.com/gousdt/gousdt/sdt

go 1.25.0
