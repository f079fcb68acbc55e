package simulation

import ("testing";"context";"time";"encoding/json";"os";"strconv")
func TestQuick(t *testing.T){
 n,_:=strconv.Atoi(os.Getenv("N")); s,_:=strconv.ParseUint(os.Getenv("S"),10,64)
 o:=Options{Schedules:n, Seed:s, Span:60*time.Second}
 if os.Getenv("T")!="" {o.Trace=os.Stdout}
 t0:=time.Now()
 r,_:=Run(context.Background(), o)
 b,_:=json.MarshalIndent(r,""," ")
 t.Logf("%s %v", b, time.Since(t0))
}
