//go:build !race

package threads_test

const underRace = false
