package main

import (
	"context"
	"fmt"
	"os"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// action is one that returns nothing.
type action = chromedp.Action[chromedp.Void]

// startBrowser starts a headless chromium, found in PATH, with one empty page, for
// chromedp.Do with the context returned. It ends with the given one.
func startBrowser(ctx context.Context) (context.Context, context.CancelFunc) {
	var options []chromedp.ExecAllocatorOption
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // as root, chromium does not start with one
	}
	return chromedp.NewContext(ctx, chromedp.WithAllocatorOptions(options...))
}

// showAs makes the page believe in a window's size, in CSS pixels, and in a color
// scheme, light or dark.
func showAs(width, height int64, scheme string) action {
	return chromedp.Steps(
		chromedp.EmulateViewport(width, height),
		prefer("prefers-color-scheme", scheme))
}

func preferReducedMotion() action { return prefer("prefers-reduced-motion", "reduce") }

// prefer makes the page believe in a preference of the user's.
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

// await waits until an expression holds in the page.
func await(expression string) action {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Poll[bool](expression)(ctx, t)
		return err
	})
}

// awaitAnswers waits until the page lists so many answers, its first look included.
func awaitAnswers(n int) action {
	return await(fmt.Sprintf(`document.querySelectorAll("#log li").length >= %d`, n))
}
