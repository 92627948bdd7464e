import { defineConfig } from "vite";
import solid from "vite-plugin-solid";

// The bundle has fixed file names, so that the server can embed it and a rebuild of the same source changes nothing.
// Nothing is inlined into index.html: the server's Content-Security-Policy forbids inline scripts and styles.
export default defineConfig({
  plugins: [solid()],
  base: "/",
  worker: { format: "es", rollupOptions: { output: { entryFileNames: "place.js" } } },
  build: {
    outDir: "dist",
    emptyOutDir: true,
    sourcemap: false,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    rollupOptions: {
      output: {
        entryFileNames: "page.js",
        chunkFileNames: "page-[name].js",
        assetFileNames: "page[extname]",
      },
    },
  },
});
