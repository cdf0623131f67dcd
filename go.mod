module github.com/ferrympi/ferry

go 1.26
