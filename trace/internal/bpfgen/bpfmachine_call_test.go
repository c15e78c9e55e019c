// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// testNamespace is a PID namespace that is not the initial one.
var testNamespace = Namespace{Device: 4, Inode: 0xf0001234}

// call runs a helper. The values of maps that it returns are added to those
// that the program can reach.
func (m *bpfMachine) call(fn asm.BuiltinFunc, values [][]byte) ([][]byte, error) {
	r := &m.registers
	switch fn {
	case asm.FnGetCurrentPidTgid:
		r[0] = uint64(m.pid)<<32 | uint64(m.tid)
	case asm.FnGetNsCurrentPidTgid:
		b, err := m.at(r[3], int(r[4]), values, false)
		if err != nil {
			return values, err
		}
		clear(b)
		r[0] = minusEINVAL
		if (Namespace{r[1], r[2]}) == testNamespace && !m.foreign {
			m.order.PutUint32(b, m.tid)
			m.order.PutUint32(b[4:], m.pid)
			r[0] = 0
		}
	case asm.FnGetCurrentUidGid:
		r[0] = uint64(m.gid)<<32 | uint64(m.uid)
	case asm.FnGetSmpProcessorId:
		r[0] = uint64(m.cpu)
	case asm.FnGetCurrentCgroupId:
		r[0] = m.cgroup
	case asm.FnKtimeGetNs:
		r[0] = m.now
	case asm.FnGetAttachCookie:
		r[0] = m.cookie
	case asm.FnGetCurrentComm:
		b, err := m.at(r[1], int(r[2]), values, false)
		if err != nil {
			return values, err
		}
		n := copy(b[:len(b)-1], m.command) // some kernels do not clear the rest
		b[n] = 0
		r[0] = 0
	case asm.FnCopyFromUser:
		for page := r[3] / leastPage; page <= (r[3]+r[2]-1)/leastPage; page++ {
			delete(m.cold, page)
		}
		fallthrough
	case asm.FnProbeReadUser, asm.FnProbeReadUserStr:
		b, err := m.at(r[1], int(r[2]), values, false)
		if err != nil {
			return values, err
		}
		m.reads++
		if r[0] = m.readUser(fn, b, r[3]); int64(r[0]) < 0 {
			m.failed++
		}
	case asm.FnRingbufReserve:
		if r[0] = 0; !m.full {
			m.record = make([]byte, r[2])
			for i := range m.record {
				m.record[i] = 0x5a
			}
			r[0] = recordBase
		}
	case asm.FnRingbufSubmit:
		m.records = append(m.records, m.record)
		m.record = nil
	case asm.FnRingbufOutput:
		b, err := m.at(r[2], int(r[3]), values, false)
		if err != nil {
			return values, err
		}
		m.records = append(m.records, slices.Clone(b))
		r[0] = 0
	case asm.FnGetStack:
		b, err := m.at(r[2], 16, values, false)
		if err != nil {
			return values, err
		}
		m.store(b[:8], 0x1111)
		m.store(b[8:], 0x2222)
		r[0] = 16
	case asm.FnGetCurrentTask:
		r[0] = taskBase
	case asm.FnProbeReadKernel:
		to, err := m.at(r[1], int(r[2]), values, false)
		if err != nil {
			return values, err
		}
		r[0] = 0
		if r[3] >= taskBase && r[3] < valueBase {
			m.store(to, m.born)
			break
		}
		from, err := m.at(r[3], int(r[2]), values, false)
		if err != nil {
			return values, err
		}
		copy(to, from)
	case asm.FnGetStackid:
		r[0] = uint64(m.stackID)
	case asm.FnMapLookupElem, asm.FnMapUpdateElem, asm.FnMapDeleteElem:
		return m.callMap(fn, values)
	default:
		return values, fmt.Errorf("no such helper")
	}
	for i := 1; i <= 5; i++ {
		r[i] = 0xbad0_bad0_bad0_bad0 // not to be used any more
	}
	return values, nil
}

func (m *bpfMachine) readUser(fn asm.BuiltinFunc, b []byte, address uint64) uint64 {
	if fn != asm.FnProbeReadUserStr {
		if !m.user(b, address) {
			return minusEFAULT
		}
		return 0
	}
	for i := range b {
		if i == len(b)-1 {
			b[i] = 0
			return uint64(len(b))
		}
		if !m.user(b[i:i+1], address+uint64(i)) {
			return minusEFAULT
		}
		if b[i] == 0 && i == 0 && m.oldText {
			return 0
		}
		if b[i] == 0 {
			return uint64(i + 1)
		}
	}
	return 0
}

func (m *bpfMachine) callMap(fn asm.BuiltinFunc, values [][]byte) ([][]byte, error) {
	r := &m.registers
	mp := m.maps[int(r[1])]
	if mp == nil {
		return values, fmt.Errorf("no map %d", r[1])
	}
	key, err := m.at(r[2], mp.keySize, values, false)
	if err != nil {
		return values, err
	}
	value, found := mp.values[string(key)]
	if mp.all && !found {
		value, found = make([]byte, mp.valueSize), true
		mp.values[string(key)] = value
	}
	r[0] = 0
	switch fn {
	case asm.FnMapLookupElem:
		if mp.inner != 0 {
			r[0] = uint64(mp.inner)
		} else if found {
			values = append(values, value)
			r[0] = valueBase + uint64(len(values)-1)<<16
		}
	case asm.FnMapUpdateElem:
		from, err := m.at(r[3], mp.valueSize, values, false)
		if err != nil {
			return values, err
		}
		switch {
		case found && r[4] == updateNoExist || !found && len(mp.values) >= mp.max:
			r[0] = minusEFAULT
		default:
			mp.values[string(key)] = append([]byte(nil), from...)
		}
	case asm.FnMapDeleteElem:
		delete(mp.values, string(key))
	}
	return values, nil
}
