package integrations_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
)

func newGin(limiter gin.HandlerFunc, served *int) *gin.Engine {
	gin.SetMode(gin.TestMode)
	engine := gin.New()
	engine.Use(limiter)
	engine.GET("/export/:id", func(c *gin.Context) {
		*served++
		if httplimit.AdmissionFromContext(c.Request.Context()) != nil {
			c.Header("X-Admission", "yes")
		}
		c.String(http.StatusOK, c.Param("id"))
	})
	return engine
}

func TestGin(t *testing.T) {
	served := 0
	engine := newGin(integrations.Gin(newLimit(t, byPattern()...)), &served)
	requireLimits(t, func(path string) *http.Response { return get(engine, path).Result() }, &served)
	free := newGin(integrations.Gin(newLimit(t, byPattern()...)), &served)
	require.Equal(t, "yes", get(free, "/export/1").Header().Get("X-Admission"))
	require.Equal(t, http.StatusNotFound, get(free, "/nowhere").Code)
}

// Without Abort, gin runs the handler of a request that was already answered with 429.
func TestGinWithoutAbort(t *testing.T) {
	limit, served := newLimit(t, byPattern()...), 0
	engine := newGin(func(c *gin.Context) {
		c.Request.Pattern = c.FullPath()
		limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).ServeHTTP(c.Writer, c.Request)
	}, &served)
	for range 2 {
		require.Equal(t, http.StatusOK, get(engine, "/export/7").Code)
	}
	require.Equal(t, http.StatusTooManyRequests, get(engine, "/export/7").Code)
	require.Equal(t, 3, served)
}

func TestGinFilesOfFormsAreRemoved(t *testing.T) {
	engine := gin.New()
	engine.MaxMultipartMemory = 1
	engine.Use(integrations.Gin(newLimit(t, httplimit.WithAdmission())))
	engine.POST("/", func(c *gin.Context) {
		file, err := c.FormFile("file")
		require.NoError(t, err)
		require.NotNil(t, httplimit.AdmissionFromContext(c.Request.Context()))
		c.Header("X-Name", nameOf(t, file))
	})
	requireFileIsRemoved(t, engine)
}
