package main

// block is a part of the grid with the cells around it.
type block struct {
	size  [3]int
	cells []uint32
}

func newBlock(n int) *block {
	return &block{[3]int{n, n, n}, make([]uint32, (n+2)*(n+2)*(n+2))}
}

// index returns the index of a cell. Coordinates are from -1 to the size.
func (b *block) index(x, y, z int) int {
	return ((x+1)*(b.size[1]+2)+y+1)*(b.size[2]+2) + z + 1
}

func (b *block) get(x, y, z int) uint32    { return b.cells[b.index(x, y, z)] }
func (b *block) set(x, y, z int, v uint32) { b.cells[b.index(x, y, z)] = v }

// each calls f with the coordinates of all cells of the block.
func (b *block) each(f func(x, y, z int)) {
	for x := range b.size[0] {
		for y := range b.size[1] {
			for z := range b.size[2] {
				f(x, y, z)
			}
		}
	}
}

// step returns the block after a step. Each cell becomes the sum of itself and its 26 neighbors.
func (b *block) step() *block {
	next := &block{b.size, make([]uint32, len(b.cells))}
	b.each(func(x, y, z int) {
		var sum uint32
		for dx := -1; dx <= 1; dx++ {
			for dy := -1; dy <= 1; dy++ {
				for dz := -1; dz <= 1; dz++ {
					sum += b.get(x+dx, y+dy, z+dz)
				}
			}
		}
		next.set(x, y, z, sum)
	})
	return next
}

// wrap fills the cells around a block that is the whole periodic grid.
func (b *block) wrap() {
	around := func(x, n int) int { return (x + n) % n }
	for x := -1; x <= b.size[0]; x++ {
		for y := -1; y <= b.size[1]; y++ {
			for z := -1; z <= b.size[2]; z++ {
				b.set(x, y, z, b.get(around(x, b.size[0]), around(y, b.size[1]), around(z, b.size[2])))
			}
		}
	}
}
