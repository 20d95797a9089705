package grpclimit

import "time"

// ClientEvent describes one attempt to send a call or to open a stream: the first, or a
// retry. It is reported when the call has been answered or the stream is open, or
// there is an error. An attempt whose wait failed is reported too. If the server refuses
// a stream later, a second event describes that.
type ClientEvent struct {
	Target  string        // canonical, such as dns:///api:443
	Method  string        // full: /package.Service/Method
	Cost    float64       // tokens; 0 if Ended
	Attempt int           // 1 for the first, 2 for the first retry
	Waited  time.Duration // for the tokens, by the system clock; 0 if Ended
	Unsent  bool          // whether the wait failed, so that the attempt was not sent
	Ended   bool          // whether an open stream, already reported, ended with ResourceExhausted
	Pause   time.Duration // for which the target is paused from now on; 0 for none
	Err     error         // of the wait if Unsent, otherwise of the call
}

// WithClientObserver sets a function that is called once for each attempt at a call or at
// opening a stream, also if its wait fails. It is called once more for each open stream
// that a server refused. It is called by any number of goroutines. By default, and for
// nil, no function is called.
func WithClientObserver(observe func(ClientEvent)) ClientOption {
	return func(c *clientConfig) { c.observe = observe }
}

// report calls the observer, if there is one.
func (c *client) report(e *ClientEvent) {
	if c.observe != nil {
		c.observe(*e)
	}
}
