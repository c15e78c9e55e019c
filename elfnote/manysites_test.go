// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// manySites returns notes of probes with many sites each, more than sites share
// no strings in, with what is found in them; a zero Site stands for a broken
// note.
func manySites(im *image, random *rand.Rand) (notes [][]byte, want []Site) {
	unterminated := im.descriptor(Site{Location: codeAddress, Provider: "p", Name: "n"})
	broken := im.RawNote(probeOwner, probeType, unterminated[:len(unterminated)-2], 4)
	for probe := range 60 {
		provider, name := strings.Repeat("p", probe%3), strings.Repeat("n", probe/2%40)
		for range 1 + random.IntN(60) {
			s := Site{
				Location: codeAddress + uint64(len(want)), Provider: provider, Name: name,
				Arguments: strings.Repeat("a",
					random.IntN(3)*random.IntN(60)) + fmt.Sprint(random.IntN(30)),
			}
			if random.IntN(4) == 0 {
				s.Arguments = ""
			}
			descriptor := im.descriptor(s)
			switch random.IntN(20) {
			case 0:
				notes, want = append(notes, broken), append(want, Site{})
				continue
			case 1: // another string, which has no meaning
				descriptor = append(descriptor, "more\x00"...)
			case 2: // a location nowhere
				s.Location = 1
				notes, want = append(notes, im.note(s)), append(want, Site{})
				continue
			}
			notes, want = append(notes, im.RawNote(probeOwner, probeType, descriptor,
				4)), append(want, s)
		}
	}
	return notes, want
}

func TestProbesWithManySites(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		notes, want := manySites(im, rand.New(rand.NewPCG(1, 2)))
		im.Segments[0].Data = make([]byte, len(want))
		im.AddNotes(notes...)
		i := 0
		for site, err := range im.open(t).Sites() {
			site.Offset = 0
			qt.Assert(t, qt.Equals(site, want[i]), qt.Commentf("site %d", i))
			qt.Assert(t, qt.Equals(err != nil, want[i] == Site{}), qt.Commentf("site %d", i))
			i++
		}
		qt.Assert(t, qt.Equals(i, len(want)))
	})
}
