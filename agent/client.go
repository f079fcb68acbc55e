package agent

import (
	"context"

	"connectrpc.com/connect"

	"headroom/agent/statedir"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
)

// callWait bounds one call to powerd: the longest has it ask for a release.
const callWait = releaseWait + askWait

// Client talks to the powerd that runs on a state directory, through its socket.
// Each call ends within seven seconds; rpc.AsCLI makes of its error one for an
// operator.
func Client(stateDir string) headroomv1connect.AgentServiceClient {
	bound := connect.WithInterceptors(connect.UnaryInterceptorFunc(inTime))
	return headroomv1connect.NewAgentServiceClient(rpc.NewUnixClient(SocketPath(stateDir)), rpc.UnixURL, append(rpc.ClientOptions(), bound)...)
}

// SocketPath is where the powerd of a state directory answers.
func SocketPath(stateDir string) string { return stateDir + "/" + statedir.SocketFile }

// inTime gives each call a deadline.
func inTime(call connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, callWait)
		defer cancel()
		return call(ctx, req)
	}
}
