// SPDX-License-Identifier: BSD-2-Clause

package expr

// Containers returns the IDs of the control groups of the container that a text
// stands for. There is at least one, or an error.
type Containers func(text string) (ids []uint64, err error)

// checkContainer refuses what a container cannot be compared with.
func (p *parser) checkContainer(node *Node) error {
	switch t := node.Left; {
	case t.Source != Container || node.Right.Source != Text || node.Op != Equal &&
		node.Op != NotEqual:
		return p.fail(t.Offset,
			`a container can only be compared with a text, as in container == "4c01db0b339c"`)
	case p.containers == nil:
		return p.fail(t.Offset,
			"containers are not known here: SessionOptions.Containers is not set")
	}
	return nil
}

// ofContainer returns the condition on the control groups that a condition on a
// container is for the kernel.
func (p *parser) ofContainer(node *Node) (*Node, error) {
	offset := node.Left.Offset
	ids, err := p.containers(node.Right.Text)
	if err != nil {
		return nil, p.fail(offset, err.Error())
	}
	if p.comparisons += len(ids) - 1; p.comparisons > maxComparisons {
		return nil, p.fail(offset,
			"the container has more control groups than there can be comparisons")
	}
	parts := &Node{Op: Or}
	if node.Op == NotEqual {
		parts.Op = And
	}
	for _, id := range ids {
		parts.Nodes = append(parts.Nodes,
			&Node{Op: node.Op, Left: Term{Source: Cgroup, Offset: offset},
				Right: Term{Source: Number, Number: Uint(id), Offset: offset}})
	}
	if len(parts.Nodes) == 1 {
		return parts.Nodes[0], nil
	}
	return parts, nil
}
