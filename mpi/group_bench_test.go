package mpi

import (
	"fmt"
	"testing"
)

// BenchmarkGroup measures calls of groups of one namespace, for a small job and a large one.
func BenchmarkGroup(b *testing.B) {
	for _, n := range []int{8, 4096, 196608} {
		world := someGroup(n, 3)
		even := make([]int, n/2)
		for i := range even {
			even[i] = 2 * i
		}
		half, err := world.Incl(even...)
		if err != nil {
			b.Fatal(err)
		}
		for name, call := range map[string]func(){
			"Members":      func() { world.Members() },
			"Incl":         func() { _, _ = world.Incl(even...) },
			"Excl":         func() { _, _ = world.Excl(even...) },
			"RangeIncl":    func() { _, _ = world.RangeIncl([]Range{{0, n - 1, 2}}) },
			"Union":        func() { half.Union(world) },
			"Intersection": func() { world.Intersection(half) },
			"Translate":    func() { _, _ = half.Translate([]int{1, 2}, world) },
			"TranslateAll": func() { _, _ = world.Translate(even, half) },
			"Compare":      func() { world.Compare(half) },
		} {
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					call()
				}
			})
		}
	}
}
