// Files that the reader saves: tables as CSV and JSON, pictures as SVG and PNG.

/** Offers bytes to the browser as a file to save. */
export function saveBlob(name: string, blob: Blob): void {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Offers a text to the browser as a file to save. */
export function saveText(name: string, text: string, type: string): void {
  saveBlob(name, new Blob([text], { type }));
}

/** Writes rows as RFC 4180 says. */
export function csv(rows: readonly (readonly (string | number | null)[])[]): string {
  const field = (value: string | number | null) => {
    const text = value === null ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(field).join(",")}\r\n`).join("");
}

/** Copies a text to the clipboard, also where the clipboard's own interface is not there. */
export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "off-screen";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** Saves what a canvas shows as a PNG file. */
export function savePng(name: string, canvas: HTMLCanvasElement): void {
  canvas.toBlob((blob) => blob && saveBlob(name, blob), "image/png");
}

/** Saves an SVG picture as a PNG file, with twice as many pixels. The picture may refer to nothing outside of itself. */
export async function saveSvgAsPng(name: string, svg: string, width: number, height: number, back: string): Promise<void> {
  const picture = new Image();
  // The page's policy allows pictures of its own only as data.
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await picture.decode();
  const canvas = document.createElement("canvas");
  // Browsers refuse canvases of more than some thousand pixels a side.
  const scale = Math.min(2, 8000 / Math.max(width, height, 1));
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const context = canvas.getContext("2d")!;
  context.fillStyle = back;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  savePng(name, canvas);
}

/** Escapes a text for use in SVG. */
export function xml(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
