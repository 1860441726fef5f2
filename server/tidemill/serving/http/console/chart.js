// A line over the last two minutes, drawn as SVG.

const SVG = "http://www.w3.org/2000/svg";
const POINTS = 60;

export class Chart {
  constructor(title, format, names = [""]) {
    this.format = format;
    this.series = names.map(() => []);
    this.element = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.append(Object.assign(document.createElement("span"), { textContent: title }));
    this.values = names.map((name, index) => {
      const place = Object.assign(document.createElement("span"), { className: index ? "second" : "" });
      const value = document.createElement("b");
      place.append(name ? `${name} ` : "", value);
      caption.append(place);
      return value;
    });
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", "0 0 100 100");
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("class", "chart");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("aria-label", title);
    this.path("grid").setAttribute("d", "M0 5H100M0 50H100M0 95H100");
    this.lines = names.map((_, index) => this.path(index ? "second" : ""));
    this.axis = Object.assign(document.createElement("div"), { className: "axis" });
    this.element.append(caption, this.svg, this.axis);
    this.draw();
  }

  path(kind) {
    const path = document.createElementNS(SVG, "path");
    if (kind) path.setAttribute("class", kind);
    this.svg.append(path);
    return path;
  }

  add(...values) {
    values.forEach((value, index) => {
      this.series[index].push(value);
      if (this.series[index].length > POINTS) this.series[index].shift();
      this.values[index].textContent = value === null ? "–" : this.format(value);
    });
    this.draw();
  }

  draw() {
    const top = Math.max(...this.series.flat().filter((value) => value !== null), 0) * 1.1;
    this.series.forEach((values, index) => {
      let pen = "M";
      const steps = [];
      values.forEach((value, place) => {
        if (value === null) { pen = "M"; return; }
        const x = 100 - ((values.length - 1 - place) * 100) / (POINTS - 1);
        steps.push(`${pen}${x.toFixed(2)} ${(95 - (90 * value) / (top || 1)).toFixed(2)}`);
        pen = "L";
      });
      this.lines[index].setAttribute("d", steps.join(""));
    });
    const texts = ["2 min ago", `top ${this.format(top / 1.1)}`, "now"];
    this.axis.replaceChildren(...texts.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
  }
}

export const number = (value) => value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
export const duration = (seconds) => seconds >= 1 ? `${seconds.toFixed(2)} s`
  : seconds >= 0.001 ? `${(seconds * 1e3).toFixed(1)} ms` : `${(seconds * 1e6).toFixed(0)} µs`;
