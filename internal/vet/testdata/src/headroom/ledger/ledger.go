package ledger

const Rho = 0.01

type Kind int

const Held Kind = 1

type Node struct{ Target int }

func (n Node) Charge() int { return n.Target }
func (n Node) Least() int  { return 1 }

func Decode([]byte) Node { return Node{} }
