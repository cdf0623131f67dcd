module example.com/vendor-btl

go 1.26.0

require (
	github.com/ferrympi/ferry v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.49.0
)

replace github.com/ferrympi/ferry => ../..
