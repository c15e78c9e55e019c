package testprog
import ("testing";"os";"strings";"github.com/cilium/ebpf";"golang.org/x/sys/unix";"fmt")
func TestZZ(t *testing.T){
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	fmt.Println(err)
	memory, err := unix.Mmap(m.FD(), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	fmt.Println(err)
	b,_:=os.ReadFile("/proc/self/maps"); for l := range strings.Lines(string(b)) { if strings.Contains(l,"bpf")||strings.Contains(l,"anon") {fmt.Print(l)} }
	_ = memory
}
