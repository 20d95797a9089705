package main

import (
	"context"
	"fmt"
	"os"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// action is a chromedp.Action without a result.
type action = chromedp.Action[chromedp.Void]

// startBrowser starts a headless chromium from PATH, with one empty page. Pass the
// returned context to chromedp.Do. The browser runs until ctx ends.
func startBrowser(ctx context.Context) (context.Context, context.CancelFunc) {
	var options []chromedp.ExecAllocatorOption
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // as root, chromium starts only without a sandbox
	}
	return chromedp.NewContext(ctx, chromedp.WithAllocatorOptions(options...))
}

// showAs shows the page as in a window of a size, in CSS pixels, with a color scheme,
// light or dark.
func showAs(width, height int64, scheme string) action {
	return chromedp.Steps(
		chromedp.EmulateViewport(width, height),
		prefer("prefers-color-scheme", scheme))
}

func preferReducedMotion() action { return prefer("prefers-reduced-motion", "reduce") }

// prefer sets a preference of the user, which style sheets and scripts can read.
func prefer(feature, value string) action {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: feature, Value: value}},
		})
		return err
	})
}

// press clicks the button of a request.
func press(path string) action {
	return chromedp.Click(chromedp.CSS(fmt.Sprintf("[data-path=%q] button", path)))
}

// await waits until an expression is true in the page.
func await(expression string) action {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Poll[bool](expression)(ctx, t)
		return err
	})
}

// awaitAnswers waits until the page lists n answers. One of them answers the request that the
// page sends when it is loaded.
func awaitAnswers(n int) action {
	return await(fmt.Sprintf(`document.querySelectorAll("#log li").length >= %d`, n))
}
