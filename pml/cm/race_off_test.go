//go:build !race

package cm_test

const underRace = false
