// Looks for texts of figures that are cut off, cover another or are hard to read, and for pages
// that are wider than the window. Prints one line each into the page around the frame.
(() => {
  const faults = [];
  const quoted = (text) => JSON.stringify(text.textContent.trim().slice(0, 60));

  // The relative luminance of a colour, by WCAG 2.
  const luminance = (colour) => {
    const parts = colour.match(/[\d.]+/g).slice(0, 3).map((part) => {
      const value = part / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };

  const roots = [document];
  document.querySelectorAll("*").forEach((element) => {
    if (element.shadowRoot) roots.push(element.shadowRoot);
  });
  let texts = 0;
  for (const root of roots) {
    const name = root.host ? root.host.dataset.name + ": " : "";
    for (const svg of root.querySelectorAll("svg")) {
      const frame = svg.getBoundingClientRect();
      // Heights of lines include space above and below the letters.
      const inset = 0.2;
      const boxes = [];
      const page = svg.querySelector(".page");
      for (const text of svg.querySelectorAll("text")) {
        const box = text.getBoundingClientRect();
        if (box.width === 0) continue;
        texts += 1;
        if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5 ||
            box.top < frame.top - 0.5 || box.bottom > frame.bottom + 0.5) {
          faults.push(`${name}${quoted(text)} is cut off`);
        }
        if (page) {
          const found = contrast(getComputedStyle(text).fill, getComputedStyle(page).fill);
          if (found < 4.5) faults.push(`${name}${quoted(text)} has a contrast of ${found}`);
        }
        const margin = box.height * inset;
        const own = [box.left, box.top + margin, box.right, box.bottom - margin];
        for (const [other, at] of boxes) {
          if (own[0] < at[2] && at[0] < own[2] && own[1] < at[3] && at[1] < own[3]) {
            faults.push(`${name}${quoted(text)} covers ${quoted(other)}`);
          }
        }
        boxes.push([text, own]);
      }
    }
  }
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) faults.push(`the page takes ${width} of ${innerWidth} pixels`);
  const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const output = parent.document.createElement("pre");
  const lines = [frameElement.dataset.name, `${innerWidth} ${scheme} ${texts}`, ...faults];
  output.textContent = `FAULTS-BEGIN\n${lines.join("\n")}\nFAULTS-END`;
  parent.document.body.append(output);
})();
