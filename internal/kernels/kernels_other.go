//go:build race || !(amd64 || arm64)

package kernels

func choose() table { return table{} }
