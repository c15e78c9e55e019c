// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package proc

import (
	"errors"
	"time"
)

// eventSource does not exist here.
type eventSource struct{ happened chan struct{} }

func openEventSource() (*eventSource, error) { return nil, errors.ErrUnsupported }

func (s *eventSource) take() happenings { return happenings{} }

func (s *eventSource) spend(time.Duration) {}

// Close does nothing.
func (s *eventSource) Close() error { return nil }
