package text

import (
	"fmt"
	"slices"
	"strings"
)

// Numbers lists ranks or processors in ascending order: "0-3,7".
func Numbers(list []int) string {
	list = slices.Sorted(slices.Values(list))
	var out []string
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		if k > i {
			out = append(out, fmt.Sprintf("%d-%d", list[i], list[k]))
		} else {
			out = append(out, fmt.Sprint(list[i]))
		}
		i = k + 1
	}
	return strings.Join(out, ",")
}
