module github.com/gousdt/gousdt/tools/bench/peers/fire

go 1.25.0

tool github.com/gousdt/gousdt/sdt

require github.com/gousdt/gousdt/sdt v0.0.0 // indirect

replace github.com/gousdt/gousdt/sdt => ../../../../sdt
